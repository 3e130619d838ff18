import { Counter, Gauge, Histogram } from "prom-client";
import type { Logger } from "./logger.ts";
import type { MetricsRegistry } from "./metrics.ts";
import { inSpan, recordFailure } from "./tracing.ts";

// What `defineController` of packages/kube asks for as `ControllerTelemetry`, said once more as far as it is needed here:
// this folder imports neither that package nor any other part of the server.

interface Measured {
  readonly name: string;
  readonly workers: number;
  readonly depth: () => number;
  readonly workingSeconds: () => readonly number[];
}

interface Report {
  readonly controller: string;
  readonly outcome: "done" | "requeue-after" | "conflict" | "terminal" | "failed" | "cancelled";
  readonly durationMs: number;
  readonly error?: unknown;
}

interface Span {
  readonly name: string;
  readonly parent?: string | undefined;
  readonly attributes?: Readonly<Record<string, string>>;
}

/** Metrics outlive a term of leadership: a registry gets them once, and the gauges read the controllers of the present term. */
const opened = new WeakMap<MetricsRegistry, PassMetrics>();

/** Metrics, log lines and spans of every controller, stand-in and loop of a process, under the names that dashboards of Kubernetes controllers know. */
export function openControllerTelemetry(registry: MetricsRegistry, logger: Logger) {
  const metrics = opened.get(registry) ?? openPassMetrics(registry);
  opened.set(registry, metrics);
  return { open: (controller: Measured) => openMeter(metrics, logger, controller) };
}

function openMeter(metrics: PassMetrics, logger: Logger, measured: Measured) {
  const controller = { controller: measured.name };
  const queue = { name: measured.name, controller: measured.name };
  metrics.controllers.set(measured.name, measured);
  metrics.workersMax.set(controller, measured.workers);
  metrics.workersActive.set(controller, 0);
  return {
    keyAdded: () => metrics.queueAdds.inc(queue),
    keyRetried: () => metrics.queueRetries.inc(queue),
    keyTaken: (waitedMs: number) => metrics.queueSeconds.observe(queue, waitedMs / 1000),
    keyDone: (workedMs: number) => metrics.workSeconds.observe(queue, workedMs / 1000),
    passBegan: () => metrics.workersActive.inc(controller),
    passEnded: (report: Report) => {
      metrics.workersActive.dec(controller);
      countPass(metrics, report);
      logPass(logger, report);
    },
    inSpan: <R>({ name, ...options }: Span, work: (fail: (error: unknown) => void) => Promise<R>) =>
      inSpan(name, options, (span) => work((error) => recordFailure(span, error))),
  };
}

function countPass(metrics: PassMetrics, { controller, outcome, durationMs }: Report): void {
  metrics.passes.inc({ controller, result: resultLabels[outcome] });
  metrics.passSeconds.observe({ controller }, durationMs / 1000);
  if (resultLabels[outcome] === "error") metrics.passErrors.inc({ controller });
}

/** controller-runtime's words for outcomes. */
const resultLabels: Readonly<Record<Report["outcome"], string>> = {
  done: "success",
  cancelled: "success",
  "requeue-after": "requeue_after",
  conflict: "error",
  terminal: "error",
  failed: "error",
};

function logPass(logger: Logger, { error, ...fields }: Report): void {
  if (fields.outcome === "failed" || fields.outcome === "terminal")
    logger.warn({ ...fields, err: error }, "pass failed");
  else logger.debug(fields, "pass ended");
}

type PassMetrics = ReturnType<typeof openPassMetrics>;

function openPassMetrics(registry: MetricsRegistry) {
  const registers = [registry];
  const labelNames = ["controller"];
  /** By name. Bound: the controllers that a process defines. */
  const controllers = new Map<string, Measured>();
  collectQueues(registry, controllers);
  return {
    controllers,
    ...queueMetrics(registry),
    passes: new Counter({
      name: "controller_runtime_reconcile_total",
      help: "Passes by result.",
      labelNames: ["controller", "result"],
      registers,
    }),
    passErrors: new Counter({
      name: "controller_runtime_reconcile_errors_total",
      help: "Passes that failed.",
      labelNames,
      registers,
    }),
    passSeconds: new Histogram({
      name: "controller_runtime_reconcile_time_seconds",
      help: "Duration of passes.",
      labelNames,
      buckets: [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
      registers,
    }),
    workersMax: new Gauge({
      name: "controller_runtime_max_concurrent_reconciles",
      help: "Workers of a controller.",
      labelNames,
      registers,
    }),
    workersActive: new Gauge({
      name: "controller_runtime_active_workers",
      help: "Passes under way.",
      labelNames,
      registers,
    }),
  };
}

/** Ten steps of ten, as Kubernetes has them: from ten nanoseconds to ten seconds and beyond. */
const queueBuckets = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000];
const queueLabels = ["name", "controller"];

function queueMetrics(registry: MetricsRegistry) {
  const registers = [registry];
  const count = (name: string, help: string) => new Counter({ name, help, labelNames: queueLabels, registers });
  const time = (name: string, help: string) =>
    new Histogram({ name, help, labelNames: queueLabels, buckets: queueBuckets, registers });
  return {
    queueAdds: count("workqueue_adds_total", "Keys added."),
    queueRetries: count("workqueue_retries_total", "Keys put back because their pass failed."),
    queueSeconds: time("workqueue_queue_duration_seconds", "How long keys wait for a worker."),
    workSeconds: time("workqueue_work_duration_seconds", "How long the work on a key takes."),
  };
}

/** Registers what is read off the queues at each scrape. */
function collectQueues(registry: MetricsRegistry, controllers: ReadonlyMap<string, Measured>): void {
  const gauge = (name: string, help: string, read: (measured: Measured) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: queueLabels,
      registers: [registry],
      collect() {
        for (const [of, measured] of controllers) this.set({ name: of, controller: of }, read(measured));
      },
    });
  };
  gauge("workqueue_depth", "Keys that are ready to be worked on.", ({ depth }) => depth());
  gauge("workqueue_unfinished_work_seconds", "Time spent so far on keys under way, in all.", ({ workingSeconds }) =>
    workingSeconds().reduce((sum, seconds) => sum + seconds, 0),
  );
  gauge(
    "workqueue_longest_running_processor_seconds",
    "Time spent so far on the key under way longest.",
    ({ workingSeconds }) => Math.max(0, ...workingSeconds()),
  );
}
