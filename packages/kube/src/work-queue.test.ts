import { expect, test } from "vitest";
import { FakeClock } from "./testing/fake-clock.ts";
import { WorkQueue } from "./work-queue.ts";

const { signal } = new AbortController();

function newQueue(random = 1): { queue: WorkQueue; clock: FakeClock } {
  const clock = new FakeClock();
  return { queue: new WorkQueue({ clock, random: () => random }), clock };
}

test("WorkQueue: a key added twice: is handed out once", async () => {
  const { queue } = newQueue();
  queue.add("a");
  queue.add("a");
  expect(await queue.take(signal)).toBe("a");
  expect(queue.length).toBe(0);
});

test("WorkQueue: a key added while it is worked on: is not handed out twice at once, but again after done", async () => {
  const { queue } = newQueue();
  queue.add("a");
  await queue.take(signal);
  queue.add("a");
  expect(queue.length).toBe(0);
  queue.done("a");
  expect(await queue.take(signal)).toBe("a");
});

test("WorkQueue: several waiting workers: each gets another key", async () => {
  const { queue } = newQueue();
  const taken = Promise.all([queue.take(signal), queue.take(signal)]);
  queue.add("a");
  queue.add("a");
  queue.add("b");
  expect(await taken).toEqual(["a", "b"]);
});

test("WorkQueue: priorities: the highest goes first, and a key is raised but never lowered", async () => {
  const { queue } = newQueue();
  queue.add("low", { priority: -100 });
  queue.add("raised", { priority: -100 });
  queue.add("normal");
  queue.add("raised", { priority: 5 });
  queue.add("raised", { priority: -100 });
  const order = [await queue.take(signal), await queue.take(signal), await queue.take(signal)];
  expect(order).toEqual(["raised", "normal", "low"]);
});

test("WorkQueue: addAfter twice: the earliest counts", async () => {
  const { queue, clock } = newQueue();
  queue.addAfter("a", 10_000);
  queue.addAfter("a", 1_000);
  queue.addAfter("a", 5_000);
  await clock.advance(1_000);
  expect(queue.length).toBe(1);
  expect(queue.waiting).toBe(0);
});

test("WorkQueue: retry: waits 5 ms and doubles up to 60 s, until forget", () => {
  const { queue } = newQueue(1);
  const waits = Array.from({ length: 16 }, () => queue.retry("a"));
  expect(waits.slice(0, 4)).toEqual([5, 10, 20, 40]);
  expect(waits.at(-1)).toBe(60_000);
  queue.forget("a");
  expect(queue.retry("a")).toBe(5);
});

test("WorkQueue: retry: jitter takes off up to a half", () => {
  expect(newQueue(0).queue.retry("a")).toBe(2.5);
});

test("WorkQueue: take: an aborted wait leaves the key to the next", async () => {
  const { queue } = newQueue();
  const stop = new AbortController();
  const aborted = queue.take(stop.signal);
  stop.abort(new Error("stopped"));
  await expect(aborted).rejects.toThrow("stopped");
  const next = queue.take(signal);
  queue.add("a");
  expect(await next).toBe("a");
});

test("WorkQueue: drained: resolves when the last key is done", async () => {
  const { queue } = newQueue();
  queue.add("a");
  let drained = false;
  const waiting = queue.drained().then(() => (drained = true));
  await queue.take(signal);
  await Promise.resolve();
  expect(drained).toBe(false);
  queue.done("a");
  await waiting;
  expect(drained).toBe(true);
});

test("WorkQueue: close: forgets what waits and ignores what comes", async () => {
  const { queue, clock } = newQueue();
  queue.add("a");
  queue.addAfter("b", 10);
  queue.close();
  queue.add("c");
  await clock.advance(100);
  expect(queue.idle).toBe(true);
  expect(clock.timers).toBe(0);
});
