import { conflict, tooManyRequests } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type ControllerOptions, defineController, type Outcome, type Synced, TerminalError } from "./controller.ts";
import type { ControllerTelemetry, PassReport } from "./controller-telemetry.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import type { WorkQueue } from "./work-queue.ts";

interface Started {
  readonly clock: FakeClock;
  readonly queue: WorkQueue;
  readonly reports: PassReport[];
  /** Names of the spans that were opened, and what failed in them. */
  readonly spans: { readonly name: string; error?: unknown }[];
  readonly stop: () => Promise<void>;
}

interface StartOptions extends Partial<ControllerOptions<string>> {
  readonly caches?: readonly Synced[];
  readonly onBegin?: (stop: AbortController) => void;
}

function start(reconcile: ControllerOptions<string>["reconcile"], options: StartOptions = {}): Started {
  const { onBegin, ...parts } = options;
  const clock = new FakeClock();
  const reports: PassReport[] = [];
  const spans: Started["spans"] = [];
  const stop = new AbortController();
  const telemetry: ControllerTelemetry = {
    open: () => ({
      keyAdded: () => undefined,
      keyRetried: () => undefined,
      keyTaken: () => undefined,
      keyDone: () => undefined,
      passBegan: () => onBegin?.(stop),
      passEnded: (report) => void reports.push(report),
      inSpan: ({ name }, work) => {
        const span: Started["spans"][number] = { name };
        spans.push(span);
        return work((error) => {
          span.error = error;
        });
      },
    }),
  };
  // No jitter: each wait is the whole of its step.
  const random = () => 1;
  const controller = defineController({ name: "test", reconcile, clock, random, telemetry, ...parts });
  const running = controller.run(stop.signal);
  return {
    clock,
    queue: controller.queue,
    reports,
    spans,
    stop: async () => {
      stop.abort(new Error("stopped"));
      await running;
    },
  };
}

test("defineController: done: the key rests, and the report says what happened", async () => {
  const { queue, clock, reports, stop } = start(async () => ({ kind: "done", actions: 2 }));
  queue.add("ns/a");
  await clock.settled();
  expect(reports).toEqual([
    {
      controller: "test",
      key: "ns/a",
      passId: expect.stringMatching(/^[0-9a-f]{16,}$/),
      outcome: "done",
      durationMs: 0,
      actions: 2,
    },
  ]);
  expect(queue.idle).toBe(true);
  await stop();
});

test("defineController: requeue-after: the key comes back then and not before", async () => {
  const { queue, clock, reports, stop } = start(async () => ({ kind: "requeue-after", afterMs: 1_000 }));
  queue.add("a");
  await clock.advance(999);
  expect(reports).toHaveLength(1);
  await clock.advance(1);
  expect(reports).toHaveLength(2);
  await stop();
});

test("defineController: a thrown error: retries with growing waits, and a success resets them", async () => {
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

test("defineController: a conflict: is tried again and not called a failure", async () => {
  const { queue, clock, reports, stop } = start(async () => {
    throw conflict({ resource: "pods", name: "a" }, "changed");
  });
  queue.add("a");
  await clock.settled();
  expect(reports[0]).toMatchObject({ outcome: "conflict", retryAfterMs: 5 });
  await stop();
});

test("defineController: a server that asks for patience: is asked again when it said, not before", async () => {
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

test("defineController: a terminal error: is not tried again", async () => {
  const { queue, clock, reports, stop } = start(async () => {
    throw new TerminalError("no such runtime");
  });
  queue.add("a");
  await clock.advance(3_600_000);
  expect(reports.map(({ outcome }) => outcome)).toEqual(["terminal"]);
  await stop();
});

test("defineController: a pass that hangs: its signal aborts at the deadline", async () => {
  const { queue, clock, reports, stop } = start((_key, signal) => {
    return new Promise<Outcome>((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });
  queue.add("a");
  await clock.advance(30_000);
  expect(reports[0]).toMatchObject({ outcome: "failed", durationMs: 30_000 });
  await stop();
});

test("defineController: caches that are not filled: nothing is worked on", async () => {
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

test("defineController: several workers: different keys at once, one key never twice", async () => {
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

test("defineController: stop: aborts the pass under way and waits for it", async () => {
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

test("defineController: a key taken as the controller stops is not worked on", async () => {
  let passes = 0;
  const { queue, clock, reports } = start(
    async () => {
      passes += 1;
      return { kind: "done" };
    },
    { onBegin: (stop) => stop.abort(new Error("stopped")) },
  );
  queue.add("a");
  await clock.settled();
  expect(passes).toBe(0);
  expect(reports).toMatchObject([{ outcome: "cancelled" }]);
});

test("defineController: a failure with a deadline: the key comes back by backoff, and at the deadline however long that has grown", async () => {
  const startMs = new FakeClock().nowMs();
  const atMs: number[] = [];
  const { queue, clock, reports, stop } = start(async () => {
    atMs.push(clock.nowMs() - startMs);
    return { kind: "failed", error: new Error("down"), withinMs: 12 };
  });
  queue.add("a");
  await clock.advance(5 + 10 + 12 + 12);
  expect(atMs).toEqual([0, 5, 15, 27, 39]);
  expect(reports.map(({ outcome, retryAfterMs }) => [outcome, retryAfterMs])).toEqual([
    ["failed", 5],
    ["failed", 10],
    ["failed", 12],
    ["failed", 12],
    ["failed", 12],
  ]);
  await stop();
});

test("defineController: a conflict that is returned is a conflict", async () => {
  const { queue, clock, reports, stop } = start(async () => ({
    kind: "failed",
    error: conflict({ resource: "pods", name: "a" }, "changed"),
  }));
  queue.add("a");
  await clock.settled();
  expect(reports[0]).toMatchObject({ outcome: "conflict", retryAfterMs: 5 });
  await stop();
});

test("defineController: a pass runs in the span of its key, which learns of a failure that is returned; a key without one has none", async () => {
  const error = new Error("down");
  const { queue, clock, spans, stop } = start(async () => ({ kind: "failed", error, withinMs: 60_000 }), {
    span: (key) => (key === "a" ? { name: "ReconcileA" } : undefined),
  });
  queue.add("a");
  queue.add("b");
  await clock.settled();
  expect(spans).toEqual([{ name: "ReconcileA", error }]);
  await stop();
});

test("defineController: keys are worked on in the order of their priorities", async () => {
  const order: string[] = [];
  const { clock, stop } = start(
    async (key) => {
      order.push(key);
      return { kind: "done" };
    },
    {
      observe: (queue) => {
        queue.add("old", { priority: -100 });
        queue.add("new");
      },
    },
  );
  await clock.settled();
  expect(order).toEqual(["new", "old"]);
  await stop();
});
