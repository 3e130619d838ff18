import { expect, test } from "vitest";
import { FairLimit } from "./fair-limit.ts";
import { TokenBuckets } from "./token-bucket.ts";

test("FairLimit: one holder gets its part, and the others theirs", () => {
  const limit = new FairLimit({ perHolderMax: 3, totalMax: 5 });
  const take = (holder: string, times: number): number =>
    Array.from({ length: times }, () => limit.tryTake(holder)).filter(Boolean).length;
  expect(take("noisy", 10)).toBe(3);
  expect(take("busy", 10)).toBe(2);
  // The whole is taken; who has nothing still gets the guaranteed one.
  expect(take("quiet", 2)).toBe(1);
  limit.give("noisy");
  limit.give("noisy");
  expect(take("quiet", 2)).toBe(1);
  expect(limit.total).toBe(5);
});

test("FairLimit: what was not taken cannot be given back", () => {
  const limit = new FairLimit({ perHolderMax: 1, totalMax: 1 });
  limit.give("nobody");
  expect([limit.tryTake("a"), limit.tryTake("a"), limit.total]).toEqual([true, false, 1]);
});

test("TokenBuckets: a burst, then the rate, for each holder apart", () => {
  const buckets = new TokenBuckets({ perSecond: 10, burst: 5 });
  const take = (holder: string, nowMs: number): number =>
    Array.from({ length: 100 }, () => buckets.tryTake(holder, nowMs)).filter(Boolean).length;
  expect([take("noisy", 0), take("noisy", 0), take("quiet", 0), take("noisy", 200)]).toEqual([5, 0, 5, 2]);
  expect(take("noisy", 60_000)).toBe(5);
});

test("TokenBuckets: holders without end are forgotten, the oldest first", () => {
  const buckets = new TokenBuckets({ perSecond: 1, burst: 1, holdersMax: 2 });
  for (const holder of ["a", "b", "c"]) expect(buckets.tryTake(holder, 0)).toBe(true);
  expect([buckets.tryTake("c", 0), buckets.tryTake("a", 0)]).toEqual([false, true]);
});
