import { readdirSync } from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { killAll } from "../node/engine-processes.ts";
import { takenSandboxes } from "../node/holdings.ts";
import { RealEngine, until } from "../node/real-engine.ts";
import { Box, type DeepRung, deepRungs } from "./box.ts";

let engine: RealEngine;
beforeAll(async () => {
  engine = await RealEngine.open();
}, 180_000);
afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

/** Keeps a number in memory alone, and writes it down when it is asked to. */
const keeper = String.raw`
import os, random, time
drawn = random.getrandbits(48)
ticks = 0
while True:
    ticks += 1
    if os.path.exists("/ask"):
        os.unlink("/ask")
        open("/said.part", "w").write(f"{ticks} {drawn}")
        os.rename("/said.part", "/said")
    time.sleep(0.02)
`;

async function startBox(name: string, rung: DeepRung): Promise<Box> {
  const box = new Box(engine, name, rung);
  await box.start({ containers: [{ name: "main", image: "host", command: ["python3", "-c", keeper] }] });
  return box;
}

async function memoryOf(box: Box): Promise<{ readonly ticks: number; readonly drawn: string }> {
  const script = "rm -f /said; touch /ask; for i in $(seq 100); do test -e /said && exec cat /said; sleep 0.1; done";
  const [ticks, drawn = ""] = (await box.sh(script)).split(" ");
  return { ticks: Number(ticks), drawn };
}

const savedStates = (): string[] => readdirSync(path.join(engine.hostDir, "snapshots"));

async function startAgain(): Promise<void> {
  await pause(500);
  engine.up();
  await engine.connect();
}

async function expectMemory(box: Box, before: { readonly ticks: number; readonly drawn: string }): Promise<void> {
  await box.wake();
  const after = await memoryOf(box);
  expect(after.drawn, box.rung).toBe(before.drawn);
  expect(after.ticks, box.rung).toBeGreaterThan(before.ticks);
  expect((await box.pod())?.status?.containerStatuses).toMatchObject([{ restartCount: 0 }]);
}

test("sleeping sandboxes: kill -9 of the whole engine: a frozen one and a hibernated one wake with their memory", async () => {
  const boxes = await Promise.all(deepRungs.map((rung) => startBox(`killed-${rung.toLowerCase()}`, rung)));
  const before = await Promise.all(boxes.map(memoryOf));
  await Promise.all(boxes.map((box) => box.sleep()));
  await killAll(engine);
  await startAgain();
  for (const [index, box] of boxes.entries()) {
    await box.asleep();
    await expectMemory(box, before[index] ?? expect.unreachable("each was asked"));
    await box.remove();
  }
});

test("sleeping sandboxes: down and up: a hibernated one wakes with its memory, and a frozen one with its files", async () => {
  const [frozen, hibernated] = [await startBox("down-freeze", "Freeze"), await startBox("down-hibernate", "Hibernate")];
  const [lost, kept] = [await memoryOf(frozen), await memoryOf(hibernated)];
  await frozen.sh("echo written > /file");
  await Promise.all([frozen.sleep(), hibernated.sleep()]);
  engine.cli("down");
  await startAgain();
  await hibernated.asleep();
  await expectMemory(hibernated, kept);
  await frozen.wake();
  // `down` ends what runs or stands still.
  expect((await memoryOf(frozen)).drawn).not.toBe(lost.drawn);
  expect(await frozen.sh("cat /file")).toBe("written\n");
  await Promise.all([frozen.remove(), hibernated.remove()]);
});

const mib = 1024 * 1024;

test("sleeping sandboxes: what they cost and have freed is in their status, and in what ls, describe and status print", async () => {
  const [frozen, hibernated] = [await startBox("cost-freeze", "Freeze"), await startBox("cost-hibernate", "Hibernate")];
  const memoryUse = async (box: Box) => (await box.object()).status?.memory;
  for (const box of [frozen, hibernated]) {
    await until(async () => ((await memoryUse(box))?.sharedBytes ?? 0) > 0, 30_000);
    expect((await memoryUse(box))?.residentBytes).toBeGreaterThan(5 * mib);
  }
  await Promise.all([frozen.sleep(), hibernated.sleep()]);
  await until(async () => (await memoryUse(frozen))?.beforeSleepBytes !== undefined, 10_000);
  const before = (await memoryUse(frozen))?.beforeSleepBytes ?? 0;
  expect(before).toBeGreaterThan(5 * mib);
  expect((await memoryUse(frozen))?.residentBytes).toBeGreaterThan(mib);
  await until(async () => (await memoryUse(hibernated))?.residentBytes === 0, 10_000);
  const freed = (await memoryUse(hibernated))?.beforeSleepBytes ?? 0;
  expect(freed).toBeGreaterThan(5 * mib);

  const table = engine.cli("ls", "-o", "wide");
  expect(table).toMatch(/^cost-freeze +frozen .* MiB .* MiB +- +\d+s /m);
  expect(table).toMatch(/^cost-hibernate +hibernated .* 0 B +- +[\d.]+ MiB +\d+s /m);
  expect(engine.cli("describe", "cost-hibernate")).toMatch(/freed +[\d.]+ MiB by sleep[^]*rung +Hibernate, hibernated/);
  const status = JSON.parse(engine.cli("status", "-o", "json")) as { sandboxes: Record<string, unknown> };
  expect(status.sandboxes["states"]).toEqual({ frozen: 1, hibernated: 1 });
  expect(status.sandboxes["freedBytes"]).toBeGreaterThanOrEqual(freed);
  expect(status.sandboxes["savedBytes"]).toBeGreaterThan(mib);
  expect(engine.cli("status")).toMatch(/^sandboxes +1 frozen, 1 hibernated\nmemory .* MiB freed by sleep$/m);

  await frozen.wake();
  await until(async () => (await memoryUse(frozen))?.beforeSleepBytes === undefined, 30_000);
  await Promise.all([frozen.remove(), hibernated.remove()]);
}, 120_000);

test.each(["Freeze", "Hibernate"] as const)(
  "sleeping sandboxes: one that is deleted while its rung is %s leaves nothing",
  async (rung) => {
    const box = await startBox(`deleted-${rung.toLowerCase()}`, rung);
    await box.sleep();
    expect(savedStates()).toHaveLength(rung === "Hibernate" ? 1 : 0);
    await box.remove();
    await until(() => savedStates().length === 0 && takenSandboxes(engine).length === 0, 60_000);
    const kept = (dir: string): string[] => readdirSync(path.join(engine.hostDir, dir));
    await until(() => kept("writable/kept").length === 0, 60_000);
  },
  120_000,
);

test.each([0, 20, 60, 150, 400])(
  "sleeping sandboxes: one that is deleted %i ms after it was asked to hibernate leaves nothing",
  async (afterMs) => {
    const box = await startBox(`early-${afterMs}`, "Hibernate");
    await box.beginSleep();
    await pause(afterMs);
    await box.remove();
    await until(() => savedStates().length === 0 && takenSandboxes(engine).length === 0, 60_000);
  },
  120_000,
);
