import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RuntimeName } from "../../packages/server/src/node/host/container.ts";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { containerOf, sweepAll } from "./contract.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

/** The life of one sandbox; every step may be cut and repeated. */
function stepsOf(host: Host, id: string, slot: number, runtime: RuntimeName): readonly (() => Promise<unknown>)[] {
  const address = `10.201.1.${slot}`;
  const endpoints = [{ slot, address, ingress: [{}], egress: [{}] }];
  return [
    () => host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" }),
    () => host.ensureSlot({ slot }),
    () => host.assignSlot({ slot, address }),
    () => host.applyRules({ endpoints, gatewayPorts: [], sleeping: [] }),
    () => host.ensureCgroup({ id, cpuShares: 1024, pids: 300 }),
    () => host.ensureVolume({ id, sizeBytes: 2 ** 23 }),
    () => host.prepareRootfs({ id, hostUsr: true, writableBytes: 2 ** 24, keepKey: id }),
    () =>
      host.runContainer(
        containerOf(id, runtime, ["/bin/sh", "-c", "sleep 3; exit 21"], {
          slot,
          cgroup: id,
          mounts: [{ source: { kind: "volume", id }, target: "/v", readOnly: false }],
        }),
      ),
  ];
}

/** Kill delays in milliseconds that fall into every part of a start, which takes about 150; `AGENT_SANDBOX_TEST_FULL=1` tries more. */
const delays =
  process.env["AGENT_SANDBOX_TEST_FULL"] === "1" ? [2, 8, 15, 25, 40, 60, 80, 100, 130, 170] : [5, 30, 70, 120];

test.for(["runsc", "runc"] as const)(
  "host kill: at any moment of a start under %s, repeating it completes it and nothing is left",
  { timeout: 110_000 },
  async (runtime) => {
    const { instance } = await real.host.info();
    for (const [index, delayMs] of delays.entries()) {
      const id = `k-${runtime}-${delayMs}`;
      const slot = index + 1;
      const firstTry = (async () => {
        for (const step of stepsOf(real.host, id, slot, runtime)) await step();
      })().catch(() => {});
      await sleep(delayMs);
      await real.kill();
      await firstTry;
      await real.start();
      for (const step of stepsOf(real.host, id, slot, runtime)) await step();
      expect(await real.host.containerState({ id })).toMatchObject({ status: "running" });
    }
    for (const delayMs of delays) {
      const exit = await real.host.waitContainer({ id: `k-${runtime}-${delayMs}`, waitMs: 20_000 });
      expect(exit).toMatchObject({ exitCode: 21 });
    }
    expect((await real.host.sweep(sweepAll)).failed).toEqual([]);
    await expect.poll(() => real.leftovers(instance), { timeout: 10_000 }).toEqual([]);
  },
);
