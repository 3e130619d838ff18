import { expect, test } from "vitest";
import { defineLoop } from "./loop.ts";
import { FakeClock } from "./testing/fake-clock.ts";

test("defineLoop: runs again and again, also after a failure, until stopped", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const startMs = clock.nowMs();
  const atMs: number[] = [];
  const loop = defineLoop({
    name: "sweep",
    everyMs: 1_000,
    clock,
    random: () => 1,
    run: async () => {
      atMs.push(clock.nowMs() - startMs);
      if (atMs.length === 2) throw new Error("once");
    },
  }).run(stop.signal);
  await clock.advance(4_000);
  expect(atMs).toEqual([1_000, 2_000, 3_000, 4_000]);
  stop.abort(new Error("stopped"));
  await loop;
  expect(clock.timers).toBe(0);
});
