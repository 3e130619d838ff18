import { Counter, Gauge } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import { RequestSeries } from "./request-series.ts";

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
  readonly #requests: RequestSeries;
  readonly #upstreamErrors: Counter;
  readonly #upstreamRetries: Counter;
  readonly #decisions: Counter;
  readonly #wakes: Counter;
  readonly #held: Gauge;
  readonly #certificateLoads: Counter;
  #inflight = 0;
  /** Callers let through since the registry was last read, by namespace. */
  readonly #allowed = new Map<string, number>();

  constructor(registry: MetricsRegistry, held: () => number) {
    const registers = [registry];
    this.#requests = new RequestSeries(registry);
    const inflight: Gauge = new Gauge({
      name: "sandbox_router_inflight_requests",
      help: "Requests under way",
      registers,
      collect: () => inflight.set(this.#inflight),
    });
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
      collect: () => this.#countAllowed(),
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
    this.#inflight += 1;
  }

  /** Call once at its end, however it ended. */
  end(outcome: {
    readonly method: string;
    readonly status: number;
    readonly namespace: string;
    readonly seconds: number;
  }): void {
    const { method, status, namespace, seconds } = outcome;
    this.#inflight -= 1;
    this.#requests.observe(methods.has(method) ? method : "other", status, namespace, seconds);
  }

  /** A failure between router and sandbox. */
  upstreamError(namespace: string, cause: unknown): void {
    this.#upstreamErrors.inc({ sandbox_namespace: namespace, reason: reasonOf(cause) });
  }

  /** A connection attempt is made again. */
  retried(namespace: string): void {
    this.#upstreamRetries.inc({ sandbox_namespace: namespace });
  }

  /** A caller was let through. */
  allowed(namespace: string): void {
    this.#allowed.set(namespace, (this.#allowed.get(namespace) ?? 0) + 1);
  }

  /** A caller was turned away. */
  denied(namespace: string): void {
    this.#decisions.inc({ sandbox_namespace: namespace, decision: "deny" });
  }

  /** Certificates were read. */
  certificatesLoaded(outcome: "success" | "failure"): void {
    this.#certificateLoads.inc({ outcome });
  }

  #countAllowed(): void {
    for (const [namespace, count] of this.#allowed)
      this.#decisions.inc({ sandbox_namespace: namespace, decision: "allow" }, count);
    this.#allowed.clear();
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
