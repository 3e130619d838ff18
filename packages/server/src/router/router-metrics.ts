import { Counter, Gauge, Histogram } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";

const methods: ReadonlySet<string> = new Set([
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
  "OPTIONS",
  "CONNECT",
  "TRACE",
]);

/** The label value for a request that was refused before its namespace was known to exist. */
export const noNamespace = "-";

/** The series of the router, under the reference's names; labels are closed sets. */
export class RouterMetrics {
  readonly #requests: Counter;
  readonly #duration: Histogram;
  readonly #inflight: Gauge;
  readonly #upstreamErrors: Counter;
  readonly #upstreamRetries: Counter;
  readonly #decisions: Counter;
  readonly #wakes: Counter;
  readonly #held: Gauge;
  readonly #certificateLoads: Counter;

  constructor(registry: MetricsRegistry, held: () => number) {
    const registers = [registry];
    const labelNames = ["method", "code", "sandbox_namespace"];
    this.#requests = new Counter({
      name: "sandbox_router_requests_total",
      help: "Requests by outcome",
      labelNames,
      registers,
    });
    this.#duration = new Histogram({
      name: "sandbox_router_request_duration_seconds",
      help: "Time from the first byte of a request to the last byte of its answer",
      labelNames,
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180],
      registers,
    });
    this.#inflight = new Gauge({ name: "sandbox_router_inflight_requests", help: "Requests under way", registers });
    this.#upstreamErrors = new Counter({
      name: "sandbox_router_upstream_errors_total",
      help: "Failures on the way to a sandbox",
      labelNames: ["sandbox_namespace", "reason"],
      registers,
    });
    this.#upstreamRetries = new Counter({
      name: "sandbox_router_upstream_retries_total",
      help: "Connection attempts to sandboxes after a failed one",
      labelNames: ["sandbox_namespace"],
      registers,
    });
    this.#decisions = new Counter({
      name: "sandbox_router_authz_decisions_total",
      help: "Access decisions",
      labelNames: ["sandbox_namespace", "decision"],
      registers,
    });
    this.#wakes = new Counter({
      name: "sandbox_router_holds_total",
      help: "Requests that waited for a sandbox",
      labelNames: ["outcome"],
      registers,
    });
    this.#certificateLoads = new Counter({
      name: "sandbox_router_cert_reloads_total",
      help: "Attempts to read the certificate files, the first included",
      labelNames: ["outcome"],
      registers,
    });
    this.#held = new Gauge({
      name: "sandbox_router_held_requests",
      help: "Requests waiting for a sandbox",
      registers,
      collect: () => this.#held.set(held()),
    });
  }

  /** Call at the start of a request. */
  begin(): void {
    this.#inflight.inc();
  }

  /** Call once at its end, however it ended. */
  end(outcome: {
    readonly method: string;
    readonly status: number;
    readonly namespace: string;
    readonly seconds: number;
  }): void {
    const method = methods.has(outcome.method) ? outcome.method : "other";
    const labels = { method, code: outcome.status, sandbox_namespace: outcome.namespace };
    this.#inflight.dec();
    this.#requests.inc(labels);
    this.#duration.observe(labels, outcome.seconds);
  }

  /** A failure between router and sandbox. */
  upstreamError(namespace: string, cause: unknown): void {
    this.#upstreamErrors.inc({ sandbox_namespace: namespace, reason: reasonOf(cause) });
  }

  /** A connection attempt is made again. */
  retried(namespace: string): void {
    this.#upstreamRetries.inc({ sandbox_namespace: namespace });
  }

  /** Whether a caller was let through. */
  decision(namespace: string, decision: "allow" | "deny"): void {
    this.#decisions.inc({ sandbox_namespace: namespace, decision });
  }

  /** Certificates were read. */
  certificatesLoaded(outcome: "success" | "failure"): void {
    this.#certificateLoads.inc({ outcome });
  }

  /** A request waited for its sandbox. */
  held(outcome: "ready" | "refused"): void {
    this.#wakes.inc({ outcome });
  }
}

function reasonOf(cause: unknown): string {
  const code = (cause as NodeJS.ErrnoException | undefined)?.code ?? "";
  if (code === "ETIMEDOUT") return "timeout";
  if (code === "ECONNRESET" || code === "EPIPE") return "eof";
  if (code === "ECONNREFUSED" || code === "EHOSTUNREACH" || code === "ENETUNREACH" || code === "ENOTFOUND")
    return "dial";
  return "other";
}
