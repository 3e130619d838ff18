import { Gauge } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import type { MeteredQueue } from "./metered-queue.ts";

type Queues = readonly { readonly name: string; readonly queue: MeteredQueue }[];

/** Where a registry's gauges read from at present: the queues of the current term of leadership. */
const sources = new WeakMap<MetricsRegistry, { list: () => Queues }>();

/** Registers what is read off the queues at each scrape. */
export function collectQueues(registry: MetricsRegistry, list: () => Queues): void {
  const present = sources.get(registry);
  if (present !== undefined) {
    present.list = list;
    return;
  }
  const source = { list };
  sources.set(registry, source);
  const gauge = (name: string, help: string, read: (queue: MeteredQueue) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ["name", "controller"],
      registers: [registry],
      collect() {
        for (const { name: of, queue } of source.list()) this.set({ name: of, controller: of }, read(queue));
      },
    });
  };
  gauge("workqueue_depth", "Keys that are ready to be worked on.", (queue) => queue.length);
  gauge("workqueue_unfinished_work_seconds", "Time spent so far on keys under way, in all.", (queue) =>
    queue.workingSeconds().reduce((sum, seconds) => sum + seconds, 0),
  );
  gauge("workqueue_longest_running_processor_seconds", "Time spent so far on the key under way longest.", (queue) =>
    Math.max(0, ...queue.workingSeconds()),
  );
}
