import { expect, test } from "vitest";
import { requiredPairs, thinPairs } from "./coverage.ts";
import { runSeeds } from "./run-seeds.ts";

/** Seeds of the normal run; `npm run simulate -- --seeds N` runs more. */
const seeds = 2_000;

test(`simulation: every invariant holds under ${seeds} seeds, and every kind of fault meets every kind of action 50 times`, {
  // On two cores this takes two to three minutes; a busy machine may take ten times as long.
  timeout: 1_800_000,
}, async () => {
  const startedMs = performance.now();
  const { failures, coverage, cpuMs } = await runSeeds({ from: 1, to: seeds });
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(0);
  const counts = requiredPairs().map(([fault, action]) => coverage.count(fault, action));
  process.stdout.write(
    `simulation: ${seeds} seeds in ${seconds} s (${(cpuMs / seeds).toFixed(0)} ms of CPU each), ${failures.length} failed, ` +
      `${counts.length} pairs of fault and action, the rarest met ${Math.min(...counts)} times\n`,
  );
  expect(failures.map(({ text }) => text)).toEqual([]);
  expect(thinPairs(coverage)).toEqual([]);
});
