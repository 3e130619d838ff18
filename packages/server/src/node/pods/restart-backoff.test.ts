import { expect, test } from "vitest";
import { backoffForgetMs, countCrash, restartDelayMs } from "./restart-backoff.ts";

test.each([
  [0, 0],
  [1, 0],
  [2, 10_000],
  [3, 20_000],
  [4, 40_000],
  [6, 160_000],
  [7, 300_000],
  [50, 300_000],
])("restartDelayMs: after %i ends the wait is %i ms", (crashes, expected) => {
  expect(restartDelayMs(crashes)).toBe(expected);
});

test("countCrash: a long run forgets what was before it", () => {
  expect(countCrash(7, backoffForgetMs)).toBe(1);
  expect(countCrash(7, backoffForgetMs - 1)).toBe(8);
});
