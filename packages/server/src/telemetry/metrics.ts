import { Registry } from "prom-client";
import { addProcessMetrics } from "./process-metrics.ts";

/** The set of metrics of one process; handed down, never global, so that tests can count in isolation. */
export type MetricsRegistry = Registry;

/** Makes an empty registry; `processMetrics` adds memory, CPU and descriptors of this process. */
export function createMetricsRegistry({ processMetrics = false } = {}): MetricsRegistry {
  const registry = new Registry();
  if (processMetrics) addProcessMetrics(registry);
  return registry;
}
