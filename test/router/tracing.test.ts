import { context, propagation, SpanKind, trace } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { call, seen } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { echo, openUpstream } from "./upstream.ts";

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
let world: RouterWorld;

beforeAll(async () => {
  provider.register({ propagator: new W3CTraceContextPropagator() });
  world = await RouterWorld.open();
});
beforeEach(() => exporter.reset());
afterAll(async () => {
  await world[Symbol.asyncDispose]();
  trace.disable();
  context.disable();
  propagation.disable();
  await provider.shutdown();
});

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;

async function open(
  tracing: boolean,
): Promise<(path: string, headers?: Record<string, string>) => ReturnType<typeof call>> {
  const name = tracing ? "traced" : "untraced";
  const router = await world.router({ tracing });
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const address = await world.sandbox(router, name);
  await openUpstream(world, { address, port: 8888 }, echo);
  return (path, headers = {}) => call(port, path, { headers: { "X-Sandbox-ID": name, ...headers } });
}

test("router tracing: a request is a span of its caller's trace, and the sandbox sees the span as its parent", async () => {
  const get = await open(true);
  const answer = await get("/a?secret=1", { traceparent, tracestate: "vendor=x" });
  const [span] = exporter.getFinishedSpans();
  expect(span).toMatchObject({
    name: "HTTP GET",
    kind: SpanKind.SERVER,
    attributes: {
      "http.method": "GET",
      "http.target": "/a",
      "http.status_code": 200,
      "sandbox.id": "traced",
      "sandbox.namespace": "default",
    },
  });
  expect(span?.spanContext().traceId).toBe(traceId);
  expect(seen(answer).headers).toMatchObject({
    traceparent: `00-${traceId}-${span?.spanContext().spanId}-01`,
    tracestate: "vendor=x",
  });
});

test("router tracing: a request without a trace begins one, and a refusal is a span too", async () => {
  const router = await world.router({ tracing: true });
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  expect((await call(port, "/", { headers: { "X-Sandbox-ID": "nobody" } })).status).toBe(404);
  const [span] = exporter.getFinishedSpans();
  expect(span?.attributes).toMatchObject({ "http.status_code": 404 });
  expect(span?.parentSpanContext).toBeUndefined();
});

test("router tracing: turned off, a caller's trace passes untouched and no span is made", async () => {
  const get = await open(false);
  const answer = await get("/", { traceparent, tracestate: "vendor=x" });
  expect(seen(answer).headers).toMatchObject({ traceparent, tracestate: "vendor=x" });
  expect(exporter.getFinishedSpans()).toEqual([]);
});
