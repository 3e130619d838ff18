import { Counter, Histogram, Registry } from "prom-client";
import { expect, test } from "vitest";
import { RequestSeries } from "./request-series.ts";

test("request series: read as the registry's own counter and histogram would be, each time it is read", async () => {
  const ours = new Registry();
  const theirs = new Registry();
  const series = new RequestSeries(ours);
  const labelNames = ["method", "code", "sandbox_namespace"];
  const requests = new Counter({
    name: "sandbox_router_requests_total",
    help: "Requests by outcome",
    labelNames,
    registers: [theirs],
  });
  const durations = new Histogram({
    name: "sandbox_router_request_duration_seconds",
    help: "Time from the first byte of a request to the last byte of its answer",
    labelNames,
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180],
    registers: [theirs],
  });
  const observe = (method: string, code: number, namespace: string, seconds: number): void => {
    const labels = { method, code, sandbox_namespace: namespace };
    series.observe(method, code, namespace, seconds);
    requests.inc(labels);
    durations.observe(labels, seconds);
  };
  for (const seconds of [0, 0.005, 0.0051, 1, 180, 181]) observe("GET", 200, "default", seconds);
  observe("POST", 503, "-", 0.3);
  expect(await ours.metrics()).toBe(await theirs.metrics());
  observe("GET", 200, "default", 4);
  observe("GET", 404, "tools", 0.02);
  expect(await ours.metrics()).toBe(await theirs.metrics());
  expect(await ours.getMetricsAsJSON()).toHaveLength(2);
});
