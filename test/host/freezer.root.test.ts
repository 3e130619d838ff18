import { readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { containerOf, runOnHostUsr, stateOf, sweepAll } from "./contract-case.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

const runtimes = ["runsc", "runc"] as const;

/** Runs a program that counts as fast as it may, one line a step. */
async function runCounter(id: string, runtime: (typeof runtimes)[number]): Promise<() => number[]> {
  await real.host.ensureCgroup({ id, cpuShares: 1024, pids: 200 });
  const script = ["/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done"];
  await runOnHostUsr(real.host, containerOf(id, runtime, script, { cgroup: id, stdoutPath: `logs/${id}` }));
  const steps = (): number[] => {
    const text = readFileSync(path.join(real.nodeDir, "logs", id), "utf8");
    return text.split("\n").filter(Boolean).map(Number);
  };
  await expect.poll(() => steps().length, { timeout: 10_000 }).toBeGreaterThan(3);
  return steps;
}

async function countsOn(steps: () => number[]): Promise<void> {
  const before = steps().length;
  await expect.poll(() => steps().length, { timeout: 10_000 }).toBeGreaterThan(before + 3);
  const all = steps();
  expect(all).toEqual(all.map((_, index) => index + 1));
}

test.for(runtimes)("host freezer: a counter under %s stands still and then counts on where it was", async (runtime) => {
  const id = `count-${runtime}`;
  const steps = await runCounter(id, runtime);
  await real.host.freezeCgroup({ id });
  const frozenAt = steps().length;
  const { cpuUsageUsec } = await real.host.cgroupStats({ id });
  await sleep(300);
  expect(steps().length).toBe(frozenAt);
  expect((await real.host.cgroupStats({ id })).cpuUsageUsec - cpuUsageUsec).toBeLessThan(1000);
  await real.host.thawCgroup({ id });
  await countsOn(steps);
  await real.host.sweep(sweepAll);
});

test.for(runtimes)(
  "host freezer: kill -9 of the helper leaves %s frozen, and the next helper thaws it",
  async (runtime) => {
    const id = `kill-${runtime}`;
    const steps = await runCounter(id, runtime);
    await real.host.freezeCgroup({ id });
    await real.kill();
    await real.start();
    expect(await real.host.cgroupStats({ id })).toMatchObject({ frozen: true });
    expect(await stateOf(real.host, id)).toMatchObject({ status: "running" });
    const frozenAt = steps().length;
    await real.host.thawCgroup({ id });
    await countsOn(steps);
    expect(steps().length).toBeGreaterThan(frozenAt);
    await real.host.sweep(sweepAll);
  },
);

test("host freezer: killed at any moment of freezes and thaws, the helper comes back to a sandbox that works", async () => {
  const id = "killed-often";
  const steps = await runCounter(id, "runsc");
  for (const delayMs of [0, 1, 2, 5, 10, 20]) {
    const cut = (async () => {
      for (;;) {
        await real.host.freezeCgroup({ id });
        await real.host.thawCgroup({ id });
      }
    })().catch(() => {});
    await sleep(delayMs);
    await real.kill();
    await cut;
    await real.start();
    await real.host.freezeCgroup({ id });
    await real.host.thawCgroup({ id });
    await countsOn(steps);
  }
  await real.host.sweep(sweepAll);
}, 60_000);

test("host freezer: what is frozen is swept without its record, and nothing is left", async () => {
  const { instance } = await real.host.info();
  for (const runtime of runtimes) {
    await runCounter(`lost-${runtime}`, runtime);
    await real.host.freezeCgroup({ id: `lost-${runtime}` });
  }
  await real.kill();
  for (const runtime of runtimes) rmSync(path.join(real.hostDir, "containers", `lost-${runtime}`, "record.json"));
  await real.start();
  expect((await real.host.sweep(sweepAll)).failed).toEqual([]);
  await expect.poll(() => real.leftovers(instance), { timeout: 10_000 }).toEqual([]);
}, 60_000);

test("host freezer: a hundred rounds take milliseconds", async () => {
  const id = "rounds";
  const steps = await runCounter(id, "runsc");
  const freezes: number[] = [];
  const thaws: number[] = [];
  for (let round = 0; round < 100; round += 1) {
    const startMs = performance.now();
    await real.host.freezeCgroup({ id });
    const frozenMs = performance.now();
    await real.host.thawCgroup({ id });
    freezes.push(frozenMs - startMs);
    thaws.push(performance.now() - frozenMs);
  }
  const at = (all: number[], part: number): number => all.toSorted((a, b) => a - b)[Math.floor(all.length * part)] ?? 0;
  const figures = [freezes, thaws].map((all) => [0.5, 0.9, 0.99].map((part) => at(all, part).toFixed(2)).join(" / "));
  process.stderr.write(`freeze p50/p90/p99 ms: ${figures[0]}; thaw: ${figures[1]}\n`);
  expect(at(freezes, 0.5)).toBeLessThan(50);
  expect(at(thaws, 0.5)).toBeLessThan(10);
  await countsOn(steps);
  await real.host.sweep(sweepAll);
}, 60_000);
