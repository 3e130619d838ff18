import { sandboxClaims, sandboxes, sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import { context, propagation, trace } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { actionOf } from "./logging-transport.ts";
import { claim, pool, sandbox, template } from "./objects.ts";
import { World } from "./world.ts";

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
  provider.register({ propagator: new W3CTraceContextPropagator() });
});
beforeEach(() => exporter.reset());
afterAll(async () => {
  trace.disable();
  context.disable();
  propagation.disable();
  await provider.shutdown();
  await ground[Symbol.asyncDispose]();
});

const traceContext = "opentelemetry.io/trace-context";
const named = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);

describe("Tracing in a world", () => {
  test("tracing: core N0e the trace is written on the Sandbox once, and later passes are its children", async () => {
    await using world = await World.open({ ground });
    await world.applied(sandboxes, sandbox("a"));
    const [made] = ground.read(sandboxes);
    const key =
      Object.keys(made?.metadata.annotations ?? {}).find((name) => name.includes("trace-context")) ?? traceContext;
    const written = world.writes.filter(
      (write) => actionOf(write) === "patch sandboxes" && write.body.includes("traceparent"),
    );
    expect(written).toHaveLength(1);
    const carrier = JSON.parse(made?.metadata.annotations?.[key] ?? "{}") as { traceparent: string };
    const [, traceId] = carrier.traceparent.split("-");
    const passes = named("ReconcileSandbox");
    expect(passes.length).toBeGreaterThan(1);
    expect(new Set(passes.map((span) => span.spanContext().traceId))).toEqual(new Set([traceId]));
  });

  test("tracing: spans carry the reference's names, attributes and events, and all of them end", async () => {
    await using world = await World.open({ ground });
    const labels = { "agents.x-k8s.io/created-by": "attacker" };
    const made = sandbox("a");
    await world.applied(sandboxes, { ...made, metadata: { ...made.metadata, labels } });
    expect(named("ReconcileSandbox")[0]?.attributes).toEqual({
      "sandbox.name": "a",
      "sandbox.namespace": "default",
      "agents.x-k8s.io/created-by": "unknown",
    });
    const events = named("reconcilePod").flatMap((span) => span.events);
    expect(events[0]).toMatchObject({ name: "NewPodStatusObserved", attributes: { "pod.Name": "a" } });
    expect(events.at(-1)).toMatchObject({ name: "ExistingPodStatusObserved", attributes: { "pod.Phase": "Running" } });
    expect(named("reconcilePVCs")).toHaveLength(named("reconcilePod").length);
    expect(exporter.getFinishedSpans().every((span) => span.ended)).toBe(true);
  });

  test("tracing: a claim's trace is its Sandbox's, and a bad annotation starts a fresh one", async () => {
    await using world = await World.open({ ground });
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 0));
    const wanted = claim("c");
    const annotations = { [traceContext]: "{not json" };
    await world.applied(sandboxClaims, { ...wanted, metadata: { ...wanted.metadata, annotations } });
    expect(named("ReconcileSandboxClaim").length).toBeGreaterThan(0);
    expect(named("ReconcileSandboxTemplate").length).toBeGreaterThan(0);
    await world.applied(sandboxClaims, claim("d"));
    const [boxed] = ground.read(sandboxes).filter(({ metadata }) => metadata.name === "d");
    const [claimed] = ground.read(sandboxClaims).filter(({ metadata }) => metadata.name === "d");
    const of = (object: typeof boxed | typeof claimed) =>
      Object.entries(object?.metadata.annotations ?? {}).find(([name]) => name.includes("trace-context"))?.[1];
    expect(of(boxed)).toBeDefined();
    expect(of(boxed)).toBe(of(claimed));
  });
});
