/** Exports spans by OTLP over gRPC, as the standard environment variables say; dispose it to flush and stop. */
export async function startTracing(serviceName = "agent-sandbox-controller"): Promise<AsyncDisposable> {
  // Loaded only here: the exporter and its gRPC stack cost tens of megabytes that most processes never need.
  const { W3CTraceContextPropagator } = await import("@opentelemetry/core");
  const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-grpc");
  const { resourceFromAttributes } = await import("@opentelemetry/resources");
  const { BatchSpanProcessor, NodeTracerProvider } = await import("@opentelemetry/sdk-trace-node");
  const provider = new NodeTracerProvider({
    resource: resourceFromAttributes({ "service.name": serviceName }),
    spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
  });
  provider.register({ propagator: new W3CTraceContextPropagator() });
  return { [Symbol.asyncDispose]: () => provider.shutdown() };
}
