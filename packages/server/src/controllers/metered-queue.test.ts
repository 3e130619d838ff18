import { FakeClock } from "@agent-sandbox/kube";
import { describe, expect, test } from "vitest";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { openControllerMetrics } from "./controller-metrics.ts";
import { MeteredQueue } from "./metered-queue.ts";
import { collectQueues } from "./queue-gauge.ts";

const signal = new AbortController().signal;

function open() {
  const registry = createMetricsRegistry();
  const clock = new FakeClock();
  const queue = new MeteredQueue({ name: "q", clock, random: () => 0.5, metrics: openControllerMetrics(registry) });
  collectQueues(registry, () => [{ name: "q", queue }]);
  const value = async (name: string): Promise<number> => {
    const line = (await registry.metrics())
      .split("\n")
      .find((each) => each.startsWith(`${name}{`) && !each.includes("le="));
    return Number(line?.split(" ").at(-1));
  };
  return { clock, queue, value };
}

describe("MeteredQueue", () => {
  test("MeteredQueue: counts a key once however often it is added before its turn", async () => {
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

  test("MeteredQueue: tells how long work takes, ended or under way", async () => {
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
});
