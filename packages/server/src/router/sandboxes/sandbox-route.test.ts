import { annotationKeys, type Sandbox } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { routeOf } from "./sandbox-route.ts";

interface Wish {
  readonly metadata?: Partial<Sandbox["metadata"]>;
  readonly spec?: Partial<Sandbox["spec"]>;
  readonly ready?: { readonly status: "True" | "False"; readonly reason: string; readonly observedGeneration?: number };
  readonly podIPs?: readonly string[];
}

function sandbox({
  metadata,
  spec,
  ready = { status: "True", reason: "DependenciesReady" },
  podIPs = ["10.0.0.1"],
}: Wish) {
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "a", namespace: "ns", uid: "u", resourceVersion: "7", ...metadata },
    spec: { podTemplate: { spec: { containers: [] } }, ...spec },
    status: {
      podIPs: [...podIPs],
      conditions: [{ type: "Ready", message: "why", lastTransitionTime: "2026-01-01T00:00:00Z", ...ready }],
    },
  } as Sandbox;
}

test("routeOf: a sandbox that is being deleted has no route (G20)", () => {
  expect(routeOf(sandbox({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }))).toBeUndefined();
});

test("routeOf: every address of the Pod is the sandbox's, whatever its Pod is called (G20)", () => {
  const metadata = { annotations: { [annotationKeys.podName]: "pool-xyz" } };
  const route = routeOf(sandbox({ metadata, podIPs: ["10.0.0.1", "fd00::1"] }));
  expect(route).toMatchObject({ name: "a", state: { kind: "ready", addresses: ["10.0.0.1", "fd00::1"] } });
});

test.each([
  ["Ready without an address", { podIPs: [] }, "starting"],
  ["not Ready", { ready: { status: "False", reason: "DependenciesNotReady" } }, "starting"],
  ["suspended by its owner", { ready: { status: "False", reason: "SandboxSuspended" } }, "held"],
  [
    "asleep by itself",
    {
      ready: { status: "False", reason: "SandboxSuspended" },
      spec: { autoSuspension: { inactivityTimeoutSeconds: 9 } },
    },
    "asleep",
  ],
  ["suspended, and woken by traffic", { spec: { operatingMode: "Suspended", wakePolicy: "OnTraffic" } }, "asleep"],
  ["suspended and still Ready, held", { spec: { operatingMode: "Suspended" } }, "ready"],
  ["expired", { ready: { status: "False", reason: "SandboxExpired" } }, "expired"],
  ["failed for good", { ready: { status: "False", reason: "PodFailed" } }, "finished"],
  [
    "failed, and all replacements are spent",
    { ready: { status: "False", reason: "PodFailed" }, spec: { podFailurePolicy: { type: "Recreate" } } },
    "finished",
  ],
  ["impossible as it is described", { ready: { status: "False", reason: "InvalidConfiguration" } }, "finished"],
] as [string, Wish, string][])("routeOf: %s", (_title, wish, kind) => {
  expect(routeOf(sandbox(wish))?.state.kind).toBe(kind);
});

test("routeOf: a suspension that later traffic has called off is over", () => {
  const spec = { operatingMode: "Suspended", wakePolicy: "OnTraffic" } as const;
  const at = (suspended: string, active: string) =>
    routeOf(
      sandbox({
        spec,
        metadata: { annotations: { [annotationKeys.suspendedAt]: suspended, [annotationKeys.lastActivityAt]: active } },
      }),
    )?.state.kind;
  expect(at("2026-01-01T00:00:05Z", "2026-01-01T00:00:06Z")).toBe("ready");
  expect(at("2026-01-01T00:00:05Z", "2026-01-01T00:00:05Z")).toBe("asleep");
});

test("routeOf: a Ready from before the suspension is not believed, whatever was active since", () => {
  const annotated = {
    [annotationKeys.suspendedAt]: "2026-01-01T00:00:05Z",
    [annotationKeys.lastActivityAt]: "2026-01-01T00:00:06Z",
  };
  const spec = { operatingMode: "Suspended", wakePolicy: "OnTraffic" } as const;
  const metadata = { annotations: annotated, generation: 2 };
  const seen = (observedGeneration: number) =>
    routeOf(sandbox({ spec, metadata, ready: { status: "True", reason: "DependenciesReady", observedGeneration } }))
      ?.state.kind;
  expect([seen(1), seen(2)]).toEqual(["asleep", "ready"]);
});
