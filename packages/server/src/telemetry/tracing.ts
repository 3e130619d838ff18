import { type Attributes, context, propagation, type Span, SpanStatusCode, trace } from "@opentelemetry/api";

const tracerName = "agent-sandbox-controller";

/** Runs `work` in a span; a failure is recorded on it. `parent` is a trace-context annotation. */
export function inSpan<R>(
  name: string,
  options: { parent?: string | undefined; attributes?: Attributes },
  work: (span: Span) => Promise<R>,
): Promise<R> {
  const parent = extractContext(options.parent);
  return trace
    .getTracer(tracerName)
    .startActiveSpan(name, { attributes: options.attributes ?? {} }, parent, async (span) => {
      try {
        return await work(span);
      } catch (error) {
        recordFailure(span, error);
        throw error;
      } finally {
        span.end();
      }
    });
}

/** Says on a span that what it covers failed, and why. */
export function recordFailure(span: Span, error: unknown): void {
  span.setStatus({ code: SpanStatusCode.ERROR, message: error instanceof Error ? error.message : String(error) });
}

/** A bad annotation starts a fresh trace: it is a user's text. */
function extractContext(annotation: string | undefined): ReturnType<typeof context.active> {
  const active = context.active();
  if (annotation === undefined || annotation === "") return active;
  try {
    const carrier: unknown = JSON.parse(annotation);
    return typeof carrier === "object" && carrier !== null ? propagation.extract(active, carrier) : active;
  } catch {
    return active;
  }
}

/** The active span as annotation text; empty when tracing is off. */
export function currentTraceContext(): string {
  const carrier: Record<string, string> = {};
  propagation.inject(context.active(), carrier);
  return Object.keys(carrier).length === 0 ? "" : JSON.stringify(carrier);
}
