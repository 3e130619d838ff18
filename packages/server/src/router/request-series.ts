import { Counter, type Metric } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";

interface Series {
  readonly labels: { readonly method: string; readonly code: number; readonly sandbox_namespace: string };
  /** How many requests ended within each bound and above the one before it. */
  readonly within: number[];
  count: number;
  sum: number;
}

const durationName = "sandbox_router_request_duration_seconds";
const boundsSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180];

/**
 * Counts requests and their duration by method, status and namespace. Every request passes here, and the registry's own
 * histogram takes longer over its labels than the router over a request's address: so the counting is ours, and the
 * registry gets them when it is read. Bound: labels are closed sets.
 */
export class RequestSeries {
  readonly #series = new Map<string, Series>();

  constructor(registry: MetricsRegistry) {
    const series = this.#series;
    new Counter({
      name: "sandbox_router_requests_total",
      help: "Requests by outcome",
      labelNames: ["method", "code", "sandbox_namespace"],
      registers: [registry],
      collect() {
        this.reset();
        for (const { labels, count } of series.values()) this.inc(labels, count);
      },
    });
    // A registry asks a metric for its name and its values, and for nothing else; its type asks for a whole class of the library, hence the cast.
    registry.registerMetric({ name: durationName, get: () => this.#durations() } as unknown as Metric);
  }

  /** Counts one request. */
  observe(method: string, code: number, namespace: string, seconds: number): void {
    const key = `${method} ${code} ${namespace}`;
    let series = this.#series.get(key);
    if (series === undefined) {
      const labels = { method, code, sandbox_namespace: namespace };
      series = { labels, within: boundsSeconds.map(() => 0), count: 0, sum: 0 };
      this.#series.set(key, series);
    }
    series.count += 1;
    series.sum += seconds;
    const bound = boundsSeconds.findIndex((each) => seconds <= each);
    if (bound !== -1) series.within[bound] = (series.within[bound] as number) + 1;
  }

  async #durations(): Promise<object> {
    const values = [...this.#series.values()].flatMap(valuesOf);
    const help = "Time from the first byte of a request to the last byte of its answer";
    return { name: durationName, help, type: "histogram", values, aggregator: "sum" };
  }
}

function valuesOf({ labels, within, count, sum }: Series): object[] {
  let total = 0;
  const buckets = boundsSeconds.map((le, index) => {
    total += within[index] as number;
    return { labels: { le, ...labels }, value: total, metricName: `${durationName}_bucket` };
  });
  return [
    ...buckets,
    { labels: { le: "+Inf", ...labels }, value: count, metricName: `${durationName}_bucket` },
    { labels, value: sum, metricName: `${durationName}_sum` },
    { labels, value: count, metricName: `${durationName}_count` },
  ];
}
