import { collectDefaultMetrics, Registry } from "prom-client";

/** The set of metrics of one process; handed down, never global, so that tests can count in isolation. */
export type MetricsRegistry = Registry;

/** Makes an empty registry; `processMetrics` adds memory, CPU and event-loop figures of this process. */
export function createMetricsRegistry({ processMetrics = false } = {}): MetricsRegistry {
  const registry = new Registry();
  if (processMetrics) collectDefaultMetrics({ register: registry });
  return registry;
}
