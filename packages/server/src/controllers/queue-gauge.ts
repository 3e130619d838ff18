import type { WorkQueue } from "@agent-sandbox/kube";
import { Gauge } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";

type Queues = readonly { readonly name: string; readonly queue: WorkQueue<string> }[];

/** Where a registry's gauge reads from at present: the queues of the current term of leadership. */
const sources = new WeakMap<MetricsRegistry, { list: () => Queues }>();

/** Registers `workqueue_depth`, read at each scrape. */
export function collectQueues(registry: MetricsRegistry, list: () => Queues): void {
  const present = sources.get(registry);
  if (present !== undefined) {
    present.list = list;
    return;
  }
  const source = { list };
  sources.set(registry, source);
  new Gauge({
    name: "workqueue_depth",
    help: "Keys that are ready to be worked on.",
    labelNames: ["name"],
    registers: [registry],
    collect() {
      for (const { name, queue } of source.list()) this.set({ name }, queue.length);
    },
  });
}
