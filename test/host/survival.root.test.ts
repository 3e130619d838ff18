import { afterAll, beforeAll, expect, test } from "vitest";
import type { RuntimeName } from "../../packages/server/src/node/host/container.ts";
import { containerOf, processOf, runOnHostUsr, stateOf, sweepAll } from "./contract.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

const runtimes: readonly RuntimeName[] = ["runsc", "runc"];

test.for(runtimes)("host restart: a container under %s goes on and its exit code is known", async (runtime) => {
  const id = `goes-on-${runtime}`;
  const script = ["/bin/sh", "-c", "sleep 2; echo done; exit 11"];
  await runOnHostUsr(real.host, containerOf(id, runtime, script, { stdoutPath: `logs/${id}` }));
  const before = await stateOf(real.host, id);
  await real.kill();
  await real.start();
  expect(await stateOf(real.host, id)).toEqual(before);
  expect(await real.host.waitContainer({ id, waitMs: 20_000 })).toMatchObject({ exitCode: 11 });
  expect(await real.readOutput(`logs/${id}`)).toBe("done\n");
});

test.for(runtimes)("host restart: an end under %s while the helper was away is known", async (runtime) => {
  const id = `away-${runtime}`;
  await runOnHostUsr(real.host, containerOf(id, runtime, ["/bin/sh", "-c", "sleep 1; exit 12"]));
  await real.kill();
  await expect.poll(() => real.runInside("pgrep", "-f", `host/containers/${id}/`).status, { timeout: 20_000 }).toBe(1);
  await real.start();
  expect(await real.host.waitContainer({ id, waitMs: 20_000 })).toMatchObject({ exitCode: 12 });
});

test("host restart: a container that joined and ended while the helper was away is known", async () => {
  await runOnHostUsr(real.host, containerOf("away-root", "runsc", ["/bin/sleep", "600"]));
  const joins = containerOf("away-joined", "runsc", ["/bin/sh", "-c", "sleep 1; exit 13"], { sandboxId: "away-root" });
  await runOnHostUsr(real.host, joins);
  await real.kill();
  await new Promise((resolve) => setTimeout(resolve, 1500));
  await real.start();
  expect(await real.host.waitContainer({ id: "away-joined", waitMs: 20_000 })).toMatchObject({ exitCode: 13 });
});

test("host restart: exec works on a container of before", async () => {
  await runOnHostUsr(real.host, containerOf("exec-later", "runsc", ["/bin/sleep", "600"]));
  await real.kill();
  await real.start();
  await using stream = await real.host.exec({
    id: "exec-later",
    process: processOf("/bin/sh", "-c", "exit 5"),
    stdin: false,
  });
  expect(await stream.exit).toBe(5);
});

test("host sweep: leaves nothing of the instance on the machine", async () => {
  const { instance } = await real.host.info();
  await real.host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
  await real.host.ensureSlot({ slot: 3 });
  await real.host.assignSlot({ slot: 3, address: "10.201.0.3" });
  await real.host.ensureCgroup({ id: "pod", cpuShares: 1024, pids: 200 });
  await real.host.ensureVolume({ id: "vol", sizeBytes: 2 ** 23 });
  const mounts = [{ source: { kind: "volume", id: "vol", subPath: "." }, target: "/mnt", readOnly: false }] as const;
  const endpoint = { slot: 3, address: "10.201.0.3", ingress: [{}], egress: [{}] };
  await real.host.applyRules({ endpoints: [endpoint], gatewayPorts: [], sleeping: [] });
  for (const runtime of runtimes) {
    const more = { cgroup: "pod", mounts, ...(runtime === "runsc" ? { slot: 3 } : {}) };
    await runOnHostUsr(real.host, containerOf(`left-${runtime}`, runtime, ["/bin/sleep", "600"], more));
  }
  expect(real.leftovers(instance).length).toBeGreaterThan(10);
  expect((await real.host.sweep(sweepAll)).failed).toEqual([]);
  await expect.poll(() => real.leftovers(instance), { timeout: 10_000 }).toEqual([]);
});
