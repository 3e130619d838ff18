import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Coverage } from "./coverage.ts";
import { Ground } from "./ground.ts";
import { mutations } from "./mutations.ts";
import { runSeeds } from "./run-seeds.ts";
import type { FailedSeed } from "./seed-range.ts";
import { simulate } from "./simulation.ts";

/** Seeds that once found a bug in this generator or an earlier one. */
const tellingSeeds = [8, 32, 394, 449, 1042, 1915, 2644];

/** With so many, memory is saved some two hundred times, and every answer of a node is met. */
const sleepySeeds = 300;

/** A planted bug is searched for in so many seeds. */
const searchMax = 120;

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** Which revision an object has, and at what time (which Events have in their names), depends on what ran before; nothing else may. */
function withoutRevisions(failures: readonly FailedSeed[]): FailedSeed[] {
  const timeless = (text: string): string =>
    text
      .replace(/"resourceVersion":"\d+"/g, "")
      .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "")
      .replace(/("kind":"Event","metadata":\{"name":"[^".]+)[^"]*/g, "$1")
      // An Event is named after the moment, which is another one when earlier seeds have passed.
      .replace(/(\/events\/[^ .]+)\S*/g, "$1");
  return failures.map(({ seed, text, writes }) => ({ seed, text, writes: writes.map(timeless) }));
}

describe("simulation", () => {
  test.each(tellingSeeds)(
    "simulation: every invariant holds under the telling seed %i",
    { timeout: 60_000 },
    async (seed) => {
      await simulate({ seed, ground, coverage: new Coverage() });
      expect(ground.revision()).toBeGreaterThan(0);
    },
  );

  test(`simulation: every invariant holds under ${sleepySeeds} seeds in which users put Sandboxes into deep sleep`, {
    timeout: 600_000,
  }, async () => {
    for (let seed = 1; seed <= sleepySeeds; seed++) {
      await simulate({ seed, ground, coverage: new Coverage(), stress: "doze" });
    }
    expect(ground.revision()).toBeGreaterThan(0);
  });

  test("simulation: a failing seed fails the same way again, alone and in another process", {
    timeout: 60_000,
  }, async () => {
    const mutation = "a lost status of claims";
    const { failures } = await runSeeds({ from: 1, to: 6, jobs: 1, mutation });
    const failed = failures.at(-1);
    expect(failed?.text).toContain(`npm run simulate -- --seed ${failed?.seed}`);
    const again = await runSeeds({ from: failed?.seed ?? 0, to: failed?.seed ?? 0, jobs: 1, mutation });
    expect(withoutRevisions(again.failures)).toEqual(withoutRevisions(failures.slice(-1)));
  });

  test.each(mutations.map((mutation) => [mutation.name, mutation] as const))(
    "simulation: the planted bug is found: %s",
    { timeout: 600_000 },
    async (_name, mutation) => {
      let found: unknown;
      for (let seed = 1; seed <= searchMax && found === undefined; seed++) {
        await simulate({ seed, ground, coverage: new Coverage(), mutation }).catch((error: unknown) => {
          found = error;
        });
      }
      expect(found).toBeDefined();
    },
  );
});
