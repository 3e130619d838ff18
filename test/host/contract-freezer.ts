import { expect } from "vitest";
import type { RuntimeName } from "../../packages/server/src/node/host/container.ts";
import {
  type ContractCase,
  type ContractHost,
  containerOf,
  expectCode,
  mebibyte,
  processOf,
  runOnHostUsr,
  stateOf,
  sweepAll,
} from "./contract-case.ts";

/** Runs a container in a cgroup of its own. */
async function runAlone({ host }: ContractHost, id: string, runtime: RuntimeName): Promise<void> {
  await host.ensureCgroup({ id, cpuShares: 1024, pids: 200 });
  await runOnHostUsr(host, containerOf(id, runtime, ["/bin/sleep", "600"], { cgroup: id }));
}

/** What a pod that stands still does, and what ends it. */
export const freezerCases: readonly ContractCase[] = [
  {
    title: "freezeCgroup: again and again is one freeze, told by the statistics, and so is a thaw",
    async run(subject, runtime) {
      const { host } = subject;
      await expectCode("invalid-argument", host.freezeCgroup({ id: "../pod" }));
      await expectCode("not-found", host.freezeCgroup({ id: "frozen" }));
      await expectCode("not-found", host.thawCgroup({ id: "frozen" }));
      await runAlone(subject, "frozen", runtime);
      await host.thawCgroup({ id: "frozen" });
      for (let time = 0; time < 2; time += 1) {
        const { residentBeforeBytes, residentBytes } = await host.freezeCgroup({ id: "frozen" });
        expect(residentBytes).toBeLessThanOrEqual(residentBeforeBytes);
        expect(await host.cgroupStats({ id: "frozen" })).toMatchObject({ frozen: true });
      }
      expect(await stateOf(host, "frozen")).toMatchObject({ status: "running" });
      for (let time = 0; time < 2; time += 1) await host.thawCgroup({ id: "frozen" });
      expect(await host.cgroupStats({ id: "frozen" })).toMatchObject({ frozen: false });
    },
  },
  {
    title: "freezeCgroup: what stands still takes no command, no container and no signal but the one that ends it",
    async run(subject, runtime) {
      const { host } = subject;
      await runAlone(subject, "still", runtime);
      await host.freezeCgroup({ id: "still" });
      await expectCode("busy", host.exec({ id: "still", process: processOf("/bin/true"), stdin: false }));
      await expectCode("busy", host.killContainer({ id: "still", signal: "TERM" }));
      // A sentry that stands still cannot save itself, and would answer when it goes on.
      if (runtime === "runsc") await expectCode("busy", host.saveSandbox({ id: "still", saved: "still" }));
      await host.prepareRootfs({ id: "late", hostUsr: true, writableBytes: 64 * mebibyte });
      await expectCode("busy", host.runContainer(containerOf("late", runtime, ["/bin/true"], { cgroup: "still" })));
      expect(await host.waitContainer({ id: "still", waitMs: 1 })).toBeUndefined();
      await host.killContainer({ id: "still", signal: "KILL" });
      expect(await host.waitContainer({ id: "still", waitMs: 20_000 })).toMatchObject({ signal: 9 });
    },
  },
  {
    title: "deleteContainer: one that stands still goes at once, and its cgroup with it",
    async run(subject, runtime) {
      const { host } = subject;
      await runAlone(subject, "goes", runtime);
      await host.freezeCgroup({ id: "goes" });
      await host.deleteContainer({ id: "goes" });
      expect(await stateOf(host, "goes")).toBeUndefined();
      await host.removeCgroup({ id: "goes" });
      await expectCode("not-found", host.cgroupStats({ id: "goes" }));
    },
  },
  {
    title: "sweep: what stands still is removed like everything else",
    async run(subject, runtime) {
      const { host } = subject;
      await runAlone(subject, "swept", runtime);
      await host.freezeCgroup({ id: "swept" });
      expect((await host.sweep(sweepAll)).failed).toEqual([]);
      expect(await host.listContainers()).toEqual([]);
      await expectCode("not-found", host.cgroupStats({ id: "swept" }));
    },
  },
];
