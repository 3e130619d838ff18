import { defineController, FakeClock, type Outcome } from "@agent-sandbox/kube";
import { describe, expect, test } from "vitest";
import { openControllerTelemetry } from "./controller-telemetry.ts";
import { silentLogger } from "./logger.ts";
import { createMetricsRegistry } from "./metrics.ts";

const signal = new AbortController().signal;

function open(reconcile: () => Promise<Outcome> = async () => ({ kind: "done" })) {
  const registry = createMetricsRegistry();
  const clock = new FakeClock();
  const telemetry = openControllerTelemetry(registry, silentLogger());
  const controller = defineController({ name: "q", clock, random: () => 0.5, reconcile, telemetry });
  const value = async (name: string): Promise<number> => {
    const line = (await registry.metrics())
      .split("\n")
      .find((each) => each.startsWith(`${name}{`) && !each.includes("le="));
    return Number(line?.split(" ").at(-1));
  };
  return { clock, controller, queue: controller.queue, value, registry, telemetry };
}

describe("openControllerTelemetry: the queue", () => {
  test("openControllerTelemetry: counts a key once however often it is added before its turn", async () => {
    const { queue, value, clock } = open();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    expect([await value("workqueue_adds_total"), await value("workqueue_depth")]).toEqual([2, 2]);
    await clock.advance(2_000);
    await queue.take(signal);
    expect(await value("workqueue_queue_duration_seconds_sum")).toBe(2);
    queue.add("a");
    expect(await value("workqueue_adds_total")).toBe(3);
    queue.done("a");
    expect([await value("workqueue_adds_total"), await value("workqueue_depth")]).toEqual([3, 2]);
  });

  test("openControllerTelemetry: tells how long work takes, ended or under way", async () => {
    const { queue, value, clock } = open();
    queue.add("a");
    queue.add("b");
    await queue.take(signal);
    await clock.advance(1_000);
    await queue.take(signal);
    await clock.advance(3_000);
    expect(await value("workqueue_unfinished_work_seconds")).toBe(7);
    expect(await value("workqueue_longest_running_processor_seconds")).toBe(4);
    queue.done("a");
    expect(await value("workqueue_work_duration_seconds_sum")).toBe(4);
    expect(await value("workqueue_unfinished_work_seconds")).toBe(3);
    queue.retry("b");
    expect(await value("workqueue_retries_total")).toBe(1);
  });

  test("openControllerTelemetry: a controller of the same name takes the place of the one before, in the same registry", async () => {
    const { queue, value, clock, registry } = open();
    queue.add("a");
    queue.add("b");
    const telemetry = openControllerTelemetry(registry, silentLogger());
    const next = defineController({ name: "q", clock, reconcile: async () => ({ kind: "done" }), telemetry });
    next.queue.add("a");
    expect([await value("workqueue_depth"), await value("workqueue_adds_total")]).toEqual([1, 3]);
  });
});

describe("openControllerTelemetry: passes", () => {
  const rows: [string, () => Promise<Outcome>, string, number][] = [
    ["done", async () => ({ kind: "done" }), "success", 0],
    ["requeue-after", async () => ({ kind: "requeue-after", afterMs: 1_000 }), "requeue_after", 0],
    ["a thrown error", async () => Promise.reject(new Error("down")), "error", 1],
    ["a failure as a value", async () => ({ kind: "failed", error: new Error("down") }), "error", 1],
  ];
  test.each(rows)("openControllerTelemetry: %s is %s", async (_title, reconcile, result, errors) => {
    const { clock, controller, registry } = open(reconcile);
    const stop = new AbortController();
    const running = controller.run(stop.signal);
    controller.queue.add("k");
    await clock.settled();
    const text = await registry.metrics();
    expect(text).toContain(`controller_runtime_reconcile_total{controller="q",result="${result}"} 1`);
    expect(text.includes('controller_runtime_reconcile_errors_total{controller="q"} 1')).toBe(errors === 1);
    expect(text).toContain('controller_runtime_active_workers{controller="q"} 0');
    expect(text).toContain('controller_runtime_max_concurrent_reconciles{controller="q"} 1');
    stop.abort(new Error("stopped"));
    await running;
  });
});
