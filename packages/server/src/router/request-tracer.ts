import type { IncomingMessage } from "node:http";
import { type Context, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import type { Target } from "./addressing/target.ts";

/** One request's span, until it ends. */
export interface RequestSpan {
  readonly traceId: string;
  readonly spanId: string;
  end(status: number, target: Target | undefined): void;
}

const tracerName = "sandbox-router";

/** Headers that carry a trace; W3C's and no other. */
const traceHeaders: ReadonlySet<string> = new Set(["traceparent", "tracestate"]);

/**
 * Begins a span for a request as a child of its caller's, and puts the span in the caller's place in the request's headers,
 * so that the sandbox's own spans hang below it. Called only where spans are exported.
 */
export function beginRequestSpan(request: IncomingMessage): RequestSpan {
  const parent = propagation.extract(ROOT_CONTEXT, request.headers);
  const [path = ""] = (request.url ?? "").split("?", 1);
  const attributes = { "http.method": request.method ?? "", "http.target": path };
  const span = trace
    .getTracer(tracerName)
    .startSpan(`HTTP ${request.method}`, { kind: SpanKind.SERVER, attributes }, parent);
  passOn(request, trace.setSpan(parent, span));
  const { traceId, spanId } = span.spanContext();
  return {
    traceId,
    spanId,
    end: (status, target) => {
      if (target !== undefined)
        span.setAttributes({ "sandbox.id": target.name, "sandbox.namespace": target.namespace });
      span.setAttribute("http.status_code", status);
      if (status >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end();
    },
  };
}

function passOn(request: IncomingMessage, active: Context): void {
  const carrier: Record<string, string> = {};
  propagation.inject(active, carrier);
  const { rawHeaders, headers } = request;
  for (let index = rawHeaders.length - 2; index >= 0; index -= 2)
    if (traceHeaders.has((rawHeaders[index] as string).toLowerCase())) rawHeaders.splice(index, 2);
  for (const name of traceHeaders) delete headers[name];
  for (const [name, value] of Object.entries(carrier)) {
    rawHeaders.push(name, value);
    headers[name] = value;
  }
}
