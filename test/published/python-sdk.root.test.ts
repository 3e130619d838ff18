import { podSnapshots, podSnapshotTriggers, sandboxSnapshots } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../node/real-engine.ts";
import { type Combination, checklist, dailyCombinations, everyCombination, itemsOf } from "./checklist.ts";
import { PublishedEngine } from "./published-engine.ts";
import { drive, type Finding, pythonWith } from "./published-sdk.ts";
import { driveSnapshots } from "./published-snapshots.ts";

/** Each takes some ten seconds, most of it waiting. `AGENT_SANDBOX_TEST_FULL=1` runs every combination, and a command longer than any proxy's usual limit. */
const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";
const only = process.env["AGENT_SANDBOX_TEST_ONLY"];
const atOnceMax = 3;
const combinations = (isFull ? everyCombination : dailyCombinations).filter(
  (one) => only === undefined || keyOf(one) === only,
);

let published: PublishedEngine;
const reports = new Map<string, Promise<Record<string, Finding>>>();
let snapshots: Promise<void>;

beforeAll(async () => {
  for (const version of ["0.5.6", "1.0.8"] as const) pythonWith(version);
  published = await PublishedEngine.open({ isAged: true });
  startAll();
  snapshots = driveSnapshots(published, isFull ? 5 : 1);
  snapshots.catch(() => undefined);
}, 600_000);

afterAll(async () => {
  await Promise.allSettled([...reports.values(), snapshots]);
  await published[Symbol.asyncDispose]();
});

function keyOf({ version, mode, client }: Combination): string {
  return `${version} ${mode} ${client}`;
}

/** Every driver runs, a few at a time; reading a report waits for its driver. */
function startAll(): void {
  const lanes: Promise<unknown>[] = Array.from({ length: atOnceMax }, () => Promise.resolve());
  for (const [index, one] of combinations.entries()) {
    const report = (lanes[index % atOnceMax] as Promise<unknown>).then(() => driveOne(one));
    lanes[index % atOnceMax] = report.catch(() => undefined);
    reports.set(keyOf(one), report);
  }
}

async function driveOne(one: Combination): Promise<Record<string, Finding>> {
  const { version, mode, client } = one;
  const pool = mode === "sandboxd-service" ? "served" : /pod-ip|in-cluster/.test(mode) ? "dialled" : "pool";
  const isLong = isFull && client === "sync" && (mode === "direct" || mode === "tunnel");
  return drive(
    (...argv) => published.engine.place.inside(...argv),
    {
      ...published.options,
      version,
      mode,
      pool,
      team: keyOf(one).replaceAll(/[. ]/g, "-"),
      isAsync: client === "async",
      slowSeconds: isLong ? 190 : 3,
      items: itemsOf(one).map(({ id }) => id),
    },
    published.environment,
  );
}

const cases = combinations.flatMap((one) => itemsOf(one).map(({ id, title }) => ({ key: keyOf(one), id, title })));

test.each(cases)(
  "published Python SDK $key: $id, $title",
  async ({ key, id }) => {
    const finding = (await reports.get(key))?.[id];
    expect(finding?.failures).toEqual([]);
    expect(finding?.asserted).toBeGreaterThan(0);
  },
  600_000,
);

test("published Python SDKs: every item of the checklist is shown by some combination of every run", () => {
  const shown = new Set(dailyCombinations.flatMap((one) => itemsOf(one).map(({ id }) => id)));
  expect(checklist.filter(({ id }) => !shown.has(id))).toEqual([]);
  const numbered = checklist.map(({ id }) => id).filter((id) => id.startsWith("K"));
  expect(numbered).toEqual(Array.from({ length: 36 }, (_, index) => `K${index + 1}`));
});

test("published snapshot extension: every call does what its documents say, and leaves nothing behind", async () => {
  await snapshots;
  const { client } = published.engine;
  const left = async (): Promise<number> => {
    const lists = await Promise.all([
      client.list(podSnapshotTriggers),
      client.list(podSnapshots),
      client.list(sandboxSnapshots),
    ]);
    return lists.reduce((sum, { items }) => sum + items.length, 0);
  };
  await until(async () => (await left()) === 0, 30_000);
}, 300_000);
