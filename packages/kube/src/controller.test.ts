import { conflict, tooManyRequests } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type ControllerOptions, type Outcome, type PassReport, runController, TerminalError } from "./controller.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import { WorkQueue } from "./work-queue.ts";

interface Started {
  readonly clock: FakeClock;
  readonly queue: WorkQueue;
  readonly reports: PassReport[];
  readonly stop: () => Promise<void>;
}

function start(
  reconcile: ControllerOptions<string>["reconcile"],
  options: Partial<ControllerOptions<string>> = {},
): Started {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock, random: () => 1 });
  const reports: PassReport[] = [];
  const stop = new AbortController();
  const running = runController({
    name: "test",
    queue,
    reconcile,
    clock,
    newPassId: () => "0123456789abcdef",
    onPass: (report) => reports.push(report),
    signal: stop.signal,
    ...options,
  });
  return {
    clock,
    queue,
    reports,
    stop: async () => {
      stop.abort(new Error("stopped"));
      await running;
    },
  };
}

test("runController: done: the key rests, and the report says what happened", async () => {
  const { queue, clock, reports, stop } = start(async () => ({ kind: "done", actions: 2 }));
  queue.add("ns/a");
  await clock.settled();
  expect(reports).toEqual([
    { controller: "test", key: "ns/a", passId: "0123456789abcdef", outcome: "done", durationMs: 0, actions: 2 },
  ]);
  expect(queue.idle).toBe(true);
  await stop();
});

test("runController: requeue-after: the key comes back then and not before", async () => {
  const { queue, clock, reports, stop } = start(async () => ({ kind: "requeue-after", afterMs: 1_000 }));
  queue.add("a");
  await clock.advance(999);
  expect(reports).toHaveLength(1);
  await clock.advance(1);
  expect(reports).toHaveLength(2);
  await stop();
});

test("runController: a thrown error: retries with growing waits, and a success resets them", async () => {
  let fail = true;
  const { queue, clock, reports, stop } = start(async () => {
    if (fail) throw new Error("down");
    return { kind: "done" };
  });
  queue.add("a");
  await clock.advance(5 + 10 + 20);
  expect(reports.map(({ outcome, retryAfterMs }) => [outcome, retryAfterMs])).toEqual([
    ["failed", 5],
    ["failed", 10],
    ["failed", 20],
    ["failed", 40],
  ]);
  fail = false;
  await clock.advance(40);
  expect(queue.failures("a")).toBe(0);
  await stop();
});

test("runController: a conflict: is tried again and not called a failure", async () => {
  const { queue, clock, reports, stop } = start(async () => {
    throw conflict({ resource: "pods", name: "a" }, "changed");
  });
  queue.add("a");
  await clock.settled();
  expect(reports[0]).toMatchObject({ outcome: "conflict", retryAfterMs: 5 });
  await stop();
});

test("runController: a server that asks for patience: is asked again when it said, not before", async () => {
  const { queue, clock, reports, stop } = start(async () => {
    throw tooManyRequests("busy", 3);
  });
  queue.add("a");
  await clock.advance(2_999);
  expect(reports).toMatchObject([{ outcome: "failed", retryAfterMs: 3_000 }]);
  await clock.advance(1);
  expect(reports).toHaveLength(2);
  await stop();
});

test("runController: a terminal error: is not tried again", async () => {
  const { queue, clock, reports, stop } = start(async () => {
    throw new TerminalError("no such runtime");
  });
  queue.add("a");
  await clock.advance(3_600_000);
  expect(reports.map(({ outcome }) => outcome)).toEqual(["terminal"]);
  await stop();
});

test("runController: a pass that hangs: its signal aborts at the deadline", async () => {
  const { queue, clock, reports, stop } = start((_key, signal) => {
    return new Promise<Outcome>((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });
  queue.add("a");
  await clock.advance(30_000);
  expect(reports[0]).toMatchObject({ outcome: "failed", durationMs: 30_000 });
  await stop();
});

test("runController: caches that are not filled: nothing is worked on", async () => {
  const filled = Promise.withResolvers<void>();
  const { queue, clock, reports, stop } = start(async () => ({ kind: "done" }), {
    caches: [{ synced: () => filled.promise }],
  });
  queue.add("a");
  await clock.settled();
  expect(reports).toEqual([]);
  filled.resolve();
  await clock.settled();
  expect(reports).toHaveLength(1);
  await stop();
});

test("invariant one-key-once: several workers have different keys at once, one key never twice", async () => {
  const active = new Set<string>();
  let most = 0;
  const gates: Array<() => void> = [];
  const { queue, clock, stop } = start(
    async (key) => {
      expect(active.has(key)).toBe(false);
      active.add(key);
      most = Math.max(most, active.size);
      await new Promise<void>((resolve) => gates.push(resolve));
      active.delete(key);
      return { kind: "done" };
    },
    { workers: 3 },
  );
  for (const key of ["a", "b", "a", "c", "a"]) queue.add(key);
  await clock.settled();
  queue.add("a");
  for (let round = 0; round < 3; round += 1) {
    for (const open of gates.splice(0)) open();
    await clock.settled();
  }
  expect(most).toBe(3);
  expect(queue.idle).toBe(true);
  await stop();
});

test("runController: stop: aborts the pass under way and waits for it", async () => {
  let ended = false;
  const { queue, clock, reports, stop } = start(async (_key, signal) => {
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    ended = true;
    throw signal.reason;
  });
  queue.add("a");
  await clock.settled();
  await stop();
  expect(ended).toBe(true);
  expect(reports[0]?.outcome).toBe("cancelled");
});

test("runController: a key taken as the controller stops is not worked on", async () => {
  const stop = new AbortController();
  let passes = 0;
  const { queue, clock, reports } = start(
    async () => {
      passes += 1;
      return { kind: "done" };
    },
    {
      signal: stop.signal,
      newPassId: () => {
        stop.abort(new Error("stopped"));
        return "0123456789abcdef";
      },
    },
  );
  queue.add("a");
  await clock.settled();
  expect(passes).toBe(0);
  expect(reports).toMatchObject([{ outcome: "cancelled" }]);
});
