import type { IncomingMessage } from "node:http";
import { namespacedKey } from "@agent-sandbox/api";
import type { Logger } from "../telemetry/logger.ts";
import type { Target } from "./addressing/target.ts";
import type { ExchangeCounter } from "./limits.ts";
import { beginRequestSpan, type RequestSpan } from "./request-tracer.ts";
import { noNamespace, type RouterMetrics } from "./router-metrics.ts";
import type { ActivityReporter } from "./sandboxes/activity.ts";
import type { SandboxRoute } from "./sandboxes/sandbox-route.ts";

/** Where visits are counted. */
export interface VisitBooks {
  readonly metrics: RouterMetrics;
  readonly counter: ExchangeCounter;
  readonly activity: ActivityReporter;
  readonly logger: Logger;
  readonly accessLog: boolean;
  /** Spans are made and exported. */
  readonly tracing: boolean;
}

/** Paths that probes ask for every few seconds; logging them would drown the rest. */
const unloggedPaths: ReadonlySet<string> = new Set(["/healthz", "/readyz", "/metrics"]);

/** The accounts of one request or upgrade, from its first byte to its end, however it ends. */
export class Visit {
  readonly #books: VisitBooks;
  readonly #request: IncomingMessage;
  readonly #startMs = performance.now();
  #target: Target | undefined;
  /** Who took a place among the open exchanges, and at which sandbox. */
  #client = "";
  #sandbox: string | undefined;
  #endUse: (() => void) | undefined;
  #isOver = false;
  readonly #span: RequestSpan | undefined;

  constructor(books: VisitBooks, request: IncomingMessage) {
    this.#books = books;
    this.#request = request;
    this.#span = books.tracing ? beginRequestSpan(request) : undefined;
    books.metrics.begin();
  }

  /** The namespace, once the caller may know it. */
  get namespace(): string {
    return this.#target?.namespace ?? noNamespace;
  }

  /** The caller was let through. */
  admitted(target: Target): void {
    this.#target = target;
    this.#books.metrics.allowed(target.namespace);
  }

  /** Takes a place among the open exchanges; throws 429 where there is none. */
  enter(): void {
    const { namespace, name } = this.#target as Target;
    const sandbox = namespacedKey(namespace, name);
    this.#client = this.#request.socket.remoteAddress ?? "";
    this.#books.counter.enter(this.#client, sandbox);
    this.#sandbox = sandbox;
  }

  /** The sandbox is awake and in use from here on. */
  routed(route: SandboxRoute): void {
    this.#endUse?.();
    this.#endUse = this.#books.activity.track(route);
  }

  /** Closes the accounts; only the first call counts. */
  end(status: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#endUse?.();
    if (this.#sandbox !== undefined) this.#books.counter.leave(this.#client, this.#sandbox);
    const seconds = (performance.now() - this.#startMs) / 1000;
    this.#books.metrics.end({ method: this.#request.method ?? "", status, namespace: this.namespace, seconds });
    this.#span?.end(status, this.#target);
    if (this.#books.accessLog) this.#log(status, seconds);
  }

  #log(status: number, seconds: number): void {
    const { method, url = "", headers, socket } = this.#request;
    const [path = ""] = url.split("?", 1);
    if (unloggedPaths.has(path)) return;
    const fields = {
      method,
      path,
      status,
      duration_ms: Math.round(seconds * 1000),
      sandbox_id: this.#target?.name ?? headers["x-sandbox-id"],
      sandbox_namespace: this.#target?.namespace ?? headers["x-sandbox-namespace"],
      client_ip: socket?.remoteAddress,
      user_agent: headers["user-agent"],
      ...(this.#span !== undefined && { trace_id: this.#span.traceId, span_id: this.#span.spanId }),
    };
    this.#books.logger.info(fields, "request");
  }
}
