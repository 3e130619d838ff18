import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunContainerRequest, RuntimeName } from "../../packages/server/src/node/host/container.ts";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { containerOf, stateOf, sweepAll } from "./contract-case.ts";
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
      expect(await stateOf(real.host, id)).toMatchObject({ status: "running" });
    }
    for (const delayMs of delays) {
      const exit = await real.host.waitContainer({ id: `k-${runtime}-${delayMs}`, waitMs: 20_000 });
      expect(exit).toMatchObject({ exitCode: 21 });
    }
    expect((await real.host.sweep(sweepAll)).failed).toEqual([]);
    await expect.poll(() => real.leftovers(instance), { timeout: 10_000 }).toEqual([]);
  },
);

test.for([
  ["/usr/local", ["usr/local"]],
  ["/usr", ["usr/local", "usr"]],
] as const)(
  "host kill: a root file system of which %s was not mounted yet is completed by the next try",
  async ([, missing]) => {
    const id = `cut-${missing.length}`;
    const request = { id, hostUsr: true, writableBytes: 2 ** 24, keepKey: id } as const;
    const { path: root } = await real.host.prepareRootfs(request);
    for (const below of missing) expect(real.runInside("umount", path.join(root, below)).status).toBe(0);
    await real.host.prepareRootfs(request);
    expect(real.runInside("test", "-x", path.join(root, "usr/bin/env")).status).toBe(0);
    expect(real.runInside("mountpoint", "-q", path.join(root, "usr/local")).status).toBe(0);
    await real.host.sweep(sweepAll);
  },
);

function sentriesOf(id: string): number {
  return real.processesOf(id).filter((line) => line.includes(" boot ")).length;
}

/** Prepares a container and says how it is asked for. */
async function prepared(id: string): Promise<RunContainerRequest> {
  for (const step of stepsOf(real.host, id, 1, "runsc").slice(0, -1)) await step();
  return containerOf(id, "runsc", ["/bin/sleep", "600"], { slot: 1, cgroup: id });
}

/** Starts a container once more and ends it: one sandbox runs, takes signals, and goes with all it has. */
async function completes(request: RunContainerRequest): Promise<void> {
  const { id } = request;
  await real.host.runContainer(request);
  expect(sentriesOf(id)).toBe(1);
  await real.host.killContainer({ id, signal: "KILL", all: true });
  await real.host.deleteContainer({ id });
  expect(real.processesOf(id)).toEqual([]);
}

test("host kill: a start whose caller leaves in the middle is completed by the next try, and leaves one sandbox", async () => {
  const { instance } = await real.host.info();
  for (const delayMs of delays) {
    const id = `left-${delayMs}`;
    const request = await prepared(id);
    const leave = new AbortController();
    const firstTry = real.host.runContainer(request, leave.signal).catch(() => undefined);
    await sleep(delayMs);
    leave.abort();
    await firstTry;
    await completes(request);
  }
  await real.host.sweep(sweepAll);
  expect(real.leftovers(instance)).toEqual([]);
});

test("host kill: a sandbox whose runtime was killed before it wrote it down ends with its container", async () => {
  const { instance } = await real.host.info();
  const id = "unknown";
  const request = await prepared(id);
  await real.host.runContainer(request);
  // What such a kill leaves: a sandbox that runs and is in no record.
  const state = path.join(real.root, "run/agent-sandbox", instance, "runsc");
  for (const name of readdirSync(state)) if (name.startsWith(`${id}_`)) rmSync(path.join(state, name));
  const record = path.join(real.hostDir, "containers", id, "record.json");
  const {
    pid: _pid,
    running: _running,
    ...begun
  } = JSON.parse(readFileSync(record, "utf8")) as Record<string, unknown>;
  writeFileSync(record, JSON.stringify(begun));
  expect(sentriesOf(id)).toBe(1);
  await completes(request);
  await real.host.sweep(sweepAll);
  expect(real.leftovers(instance)).toEqual([]);
});
