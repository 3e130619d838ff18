import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { type WriterStep, writerSteps } from "./log-writer.ts";
import { openStore } from "./sqlite-store.ts";
import type { Store, StoreEvent } from "./store.ts";
import type { CrashOptions, CrashReport } from "./testing/crash-child.ts";
import { ManualClock } from "./testing/manual-clock.ts";
import { temporaryDirectory } from "./testing/temporary-directory.ts";

/** The whole matrix is a hundred times larger: `STORE_CRASH_ROUNDS=100`. */
const rounds = Number(process.env["STORE_CRASH_ROUNDS"] ?? 1);

const childFile = new URL("./testing/crash-child.ts", import.meta.url).pathname;

/** Runs a child until it is killed: by its failpoint, or by us `killAfterMs` after it got under way. */
async function runUntilKilled(options: CrashOptions, cache: string, killAfterMs?: number): Promise<CrashReport[]> {
  const child = spawn(process.execPath, [childFile, JSON.stringify(options)], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, NODE_COMPILE_CACHE: cache },
  });
  if (killAfterMs !== undefined) child.stdout.once("data", () => setTimeout(() => child.kill("SIGKILL"), killAfterMs));
  const exited = new Promise((resolve) => child.once("exit", (_code, signal) => resolve(signal)));
  const [, errors, signal] = await Promise.all([text(child.stdout), text(child.stderr), exited]);
  if (signal !== "SIGKILL") throw new Error(`the child ended by itself: ${errors}`);
  // The last line may be cut in two by the kill.
  const output = readFileSync(options.reportPath, "utf8");
  const lines = output.slice(0, output.lastIndexOf("\n") + 1).split("\n");
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as CrashReport);
}

function revisionsOf(reports: readonly CrashReport[], kind: CrashReport["kind"]): number[] {
  return reports.filter((report) => report.kind === kind).map(({ revision }) => revision);
}

/** Every acknowledged write is there unless a later one replaced it, and nothing is older than what was acknowledged. */
function expectNothingLost(store: Store, reports: readonly CrashReport[]): void {
  const newest = new Map<string, Extract<CrashReport, { kind: "acknowledged" }>>();
  for (const report of reports) if (report.kind === "acknowledged") newest.set(report.key, report);
  for (const { key, revision, deleted } of newest.values()) {
    const row = store.get(key);
    expect(row === undefined ? deleted || store.revision > revision : row.revision >= revision).toBe(true);
    if (row?.revision === revision) expect(deleted).toBe(false);
  }
  const acknowledged = revisionsOf(reports, "acknowledged");
  expect(new Set(acknowledged).size).toBe(acknowledged.length);
  expect(Math.max(0, ...acknowledged)).toBeLessThanOrEqual(store.revision);
}

/** What the watcher saw before the crash and what it sees when it resumes make one sequence. */
async function expectWatchResumes(store: Store, reports: readonly CrashReport[], firstRevision: number): Promise<void> {
  const before = revisionsOf(reports, "seen");
  const after = before.at(-1) ?? firstRevision;
  const events: StoreEvent[] = [];
  const watch = store.watch({ prefix: "/registry/test/", afterRevision: after });
  const marker = await store.append({
    key: "/registry/test/marker",
    value: Buffer.of(),
    expectedRevision: store.get("/registry/test/marker")?.revision ?? 0,
  });
  for await (const batch of watch) {
    events.push(...batch);
    if (events.at(-1)?.row.revision === marker.revision) break;
  }
  const revisions = [...before, ...events.map(({ row }) => row.revision)];
  expect(revisions).toEqual([...new Set(revisions)].sort((a, b) => a - b));
  const seen = new Set(revisions);
  for (const revision of revisionsOf(reports, "acknowledged")) expect(seen.has(revision)).toBe(true);
}

/** Kills the same store again and again; each start must find every write that was acknowledged before the kill. */
async function surviveKills(
  kills: ReadonlyArray<{ failpoint?: { step: WriterStep; hit: number }; killAfterMs?: number }>,
) {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  let acknowledged = 0;
  let firstRevision = 0;
  for (const [seed, { failpoint, killAfterMs }] of kills.entries()) {
    const reportPath = join(directory.path, `reports-${seed}`);
    const options = { path, reportPath, seed, ...(failpoint !== undefined && { failpoint }) };
    const reports = await runUntilKilled(options, join(directory.path, "cache"), killAfterMs);
    acknowledged += revisionsOf(reports, "acknowledged").length;
    const store = openStore({ path, clock: new ManualClock() });
    expectNothingLost(store, reports);
    await expectWatchResumes(store, reports, firstRevision);
    firstRevision = store.revision;
    await store.close();
  }
  return acknowledged;
}

/** Every kill starts a process anew, and a busy machine takes its time over that. */
const timeoutMs = 120_000 * rounds;

const half = writerSteps.length / 2;
const atSteps = (steps: readonly WriterStep[]) =>
  Array.from({ length: rounds }, (_, round) =>
    steps.map((step) => ({ failpoint: { step, hit: 12 + round * 5 } })),
  ).flat();

test(
  "store: killed between the side effects of an append: loses nothing that was acknowledged",
  async () => {
    expect(await surviveKills(atSteps(writerSteps.slice(0, half)))).toBeGreaterThan(0);
  },
  timeoutMs,
);

test(
  "store: killed between the side effects of a compaction: loses nothing that was acknowledged",
  async () => {
    expect(await surviveKills(atSteps(writerSteps.slice(half)))).toBeGreaterThan(0);
  },
  timeoutMs,
);

test(
  "invariant acknowledged-is-durable: a store killed at random moments loses nothing that was acknowledged",
  async () => {
    const kills = Array.from({ length: 4 * rounds }, () => ({ killAfterMs: Math.random() * 300 }));
    expect(await surviveKills(kills)).toBeGreaterThan(100);
  },
  timeoutMs,
);
