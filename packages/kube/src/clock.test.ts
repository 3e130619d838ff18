import { expect, test } from "vitest";
import { delay, systemClock, timerMaxMs } from "./clock.ts";
import { FakeClock } from "./testing/fake-clock.ts";

test("systemClock: a delay beyond what platform timers take: does not fire at once", async () => {
  let fired = false;
  const dispose = systemClock.setTimer(timerMaxMs + 1_000, () => (fired = true));
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(fired).toBe(false);
  dispose();
});

test("systemClock: a short delay: fires", async () => {
  await new Promise<void>((resolve) => {
    const keep = setTimeout(() => undefined, 1_000);
    systemClock.setTimer(1, () => {
      clearTimeout(keep);
      resolve();
    });
  });
});

test("systemClock: when a timer fires, its own clock says that the delay has passed", async () => {
  const keep = setInterval(() => undefined, 1_000);
  const early = (index: number): Promise<boolean> =>
    new Promise((resolve) => {
      // Spread over the millisecond: platform timers are early for some of its parts only.
      setTimeout(() => {
        const sinceMs = systemClock.nowMs();
        systemClock.setTimer(5 + (index % 20), () => resolve(systemClock.nowMs() - sinceMs < 5 + (index % 20)));
      }, index / 2);
    });
  expect((await Promise.all(Array.from({ length: 1_000 }, (_, index) => early(index)))).filter(Boolean)).toEqual([]);
  clearInterval(keep);
});

test("delay: aborted: rejects with the reason and leaves no timer", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const waiting = delay(clock, 1_000, stop.signal);
  stop.abort(new Error("stopped"));
  await expect(waiting).rejects.toThrow("stopped");
  expect(clock.timers).toBe(0);
});

test("FakeClock: advance: fires in order of time, timers set by timers included", async () => {
  const clock = new FakeClock(0);
  const fired: Array<[string, number]> = [];
  clock.setTimer(20, () => fired.push(["b", clock.nowMs()]));
  clock.setTimer(10, () => {
    fired.push(["a", clock.nowMs()]);
    clock.setTimer(5, () => fired.push(["c", clock.nowMs()]));
  });
  await clock.advance(30);
  expect(fired).toEqual([
    ["a", 10],
    ["c", 15],
    ["b", 20],
  ]);
  expect(clock.nowMs()).toBe(30);
});

test("FakeClock: settled: waits for chains of promises that use the clock", async () => {
  const clock = new FakeClock();
  let steps = 0;
  void (async () => {
    for (; steps < 50; steps += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.nowMs();
    }
  })();
  await clock.settled();
  expect(steps).toBe(50);
});

test("FakeClock: settled: a world that never rests: says so", async () => {
  const clock = new FakeClock();
  await expect(clock.settled({ busy: [() => true], turnsMax: 50 })).rejects.toThrow("did not settle");
});
