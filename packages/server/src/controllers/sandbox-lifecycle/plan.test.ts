import type { PersistentVolumeClaim } from "@agent-sandbox/api";
import { annotationKeys, labelKeys, nameHash } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aCondition, aPod, aSandbox, aService, aSnapshot, at, epochMs, ownedBy } from "../testing/builders.ts";
import { planSandbox, type SandboxObserved } from "./plan.ts";

function observe(parts: Partial<SandboxObserved> = {}): SandboxObserved {
  return {
    sandbox: aSandbox(),
    pods: [],
    tracked: undefined,
    made: undefined,
    service: undefined,
    claims: new Map(),
    collidesWith: undefined,
    snapshot: undefined,
    nowMs: epochMs,
    ...parts,
  };
}

const expired = aCondition("Ready", "False", { reason: "SandboxExpired" });

describe("planSandbox, expiry", () => {
  const ending = (shutdownTime: string, marked = false, policy?: "Delete" | "Retain") =>
    aSandbox({
      spec: { shutdownTime, ...(policy === undefined ? {} : { shutdownPolicy: policy }) },
      status: { conditions: marked ? [expired] : [] },
    });
  test.each([
    ["no time", aSandbox(), "live"],
    ["future", ending(at(1)), "live"],
    ["exactly now", ending(at(0)), "mark-expired"],
    ["past, marked", ending(at(-5), true), "teardown"],
    ["marked, then moved to the future", ending(at(60), true), "live"],
  ])("planSandbox: X1, core N9 shutdownTime %s", (_title, sandbox, kind) => {
    expect(planSandbox(observe({ sandbox })).kind).toBe(kind);
  });
  test("planSandbox: X2 the first pass of an expiry deletes nothing", () => {
    expect(planSandbox(observe({ sandbox: ending(at(0)), tracked: aPod(), service: aService() }))).toMatchObject({
      kind: "mark-expired",
    });
  });
  test("planSandbox: X3, X4, core N5 the teardown takes every owned Pod and the Service, and nothing foreign", () => {
    const pods = [
      aPod(),
      aPod({ name: "second" }),
      aPod({ name: "foreign", metadata: { ownerReferences: [ownedBy("Job", "j")] } }),
    ];
    const plan = planSandbox(observe({ sandbox: ending(at(0), true, "Delete"), pods, service: aService() }));
    expect(plan).toMatchObject({
      pods: [
        { name: "my-sandbox", uid: "pod-my-sandbox" },
        { name: "second", uid: "pod-second" },
      ],
      service: { name: "my-sandbox", uid: "svc-my-sandbox" },
      deleteSandbox: true,
    });
  });
  test("planSandbox: ttlSecondsAfterFinished counts from Finished", () => {
    const status = { conditions: [aCondition("Finished", "True", { lastTransitionTime: at(0) })] };
    const sandbox = aSandbox({ spec: { ttlSecondsAfterFinished: 30 }, status });
    expect(planSandbox(observe({ sandbox, nowMs: epochMs + 29_000 })).kind).toBe("live");
    expect(planSandbox(observe({ sandbox, nowMs: epochMs + 30_000 })).kind).toBe("mark-expired");
  });
  test("planSandbox: a Sandbox on its way out is left to the garbage collector", () => {
    expect(planSandbox(observe({ sandbox: aSandbox({ metadata: { deletionTimestamp: at(0) } }) }))).toEqual({
      kind: "idle",
    });
  });
});

describe("planSandbox, storage gate", () => {
  const sandbox = aSandbox({
    spec: { volumeClaimTemplates: [{ metadata: { name: "work", labels: { a: "b" } }, spec: {} }] },
  });
  const claim = (
    ownerReferences: PersistentVolumeClaim["metadata"]["ownerReferences"],
    labels = {},
  ): Map<string, PersistentVolumeClaim> =>
    new Map([
      [
        "work-my-sandbox",
        {
          apiVersion: "v1",
          kind: "PersistentVolumeClaim",
          metadata: {
            name: "work-my-sandbox",
            uid: "u",
            resourceVersion: "3",
            labels,
            ownerReferences: ownerReferences ?? [],
          },
          spec: {},
        },
      ],
    ]);
  test("storage: D1 a missing claim is created with labels and owner, and the Pod with it", () => {
    const plan = planSandbox(observe({ sandbox }));
    expect(plan).toMatchObject({
      storage: {
        actions: [
          {
            do: "create-claim",
            claim: {
              metadata: {
                name: "work-my-sandbox",
                labels: { a: "b", "agents.x-k8s.io/sandbox-name-hash": "374de8f5" },
              },
            },
          },
        ],
      },
      pod: { action: { do: "create-pod" } },
    });
  });
  test("storage: D1, core N3 a claim of another keeps the Pod from being created", () => {
    const plan = planSandbox(observe({ sandbox, claims: claim([ownedBy("Sandbox", "other")]) }));
    expect(plan.kind === "live" && plan.storage.failure).toBe(
      'PVC "work-my-sandbox" is owned by Sandbox/other (UID: uid-other), not by sandbox "my-sandbox"',
    );
    expect(plan.kind === "live" && plan.pod.action).toBeUndefined();
  });
  test("storage: D1 an unlabelled unowned claim is refused, an adoptable one adopted", () => {
    const refused = planSandbox(observe({ sandbox, claims: claim([]) }));
    expect(refused.kind === "live" && refused.storage.failure).toContain('cannot adopt unowned PVC "work-my-sandbox"');
    const adopted = planSandbox(observe({ sandbox, claims: claim([], { "agents.x-k8s.io/adoptable": "true" }) }));
    expect(adopted).toMatchObject({
      storage: { actions: [{ do: "adopt-claim", resourceVersion: "3" }] },
      pod: { action: { do: "create-pod" } },
    });
  });
  test("storage: a suspended Sandbox still gets its claims", () => {
    const asleep = aSandbox({ spec: { ...sandbox.spec, operatingMode: "Suspended" } });
    expect(planSandbox(observe({ sandbox: asleep }))).toMatchObject({ storage: { actions: [{ do: "create-claim" }] } });
  });
});

describe("planSandbox, refusals", () => {
  test("planSandbox: several Pods leave the Service alone", () => {
    const sandbox = aSandbox({ spec: { service: true } });
    expect(planSandbox(observe({ sandbox, pods: [aPod(), aPod({ name: "b" })] }))).toMatchObject({
      service: { status: "keep" },
    });
  });
  test("planSandbox: core N6 a name with another's hash is told as impossible", () => {
    const colliding = planSandbox(observe({ collidesWith: "older" }));
    expect(colliding.kind === "live" && colliding.invalid).toContain('sandbox "older"');
    expect(colliding.kind === "live" && colliding.pod.action).toBeUndefined();
  });
  test("planSandbox: the moment of a suspension that traffic may end is stamped once and cleared on resume", () => {
    const asleep = aSandbox({ spec: { operatingMode: "Suspended", wakePolicy: "OnTraffic" } });
    const nowMs = epochMs + 700;
    const stamp = { [annotationKeys.suspendedAt]: "2026-01-01T00:00:00.7Z" };
    expect(planSandbox(observe({ sandbox: asleep, nowMs }))).toMatchObject({ stamp });
    const resumed = aSandbox({
      metadata: { annotations: { [annotationKeys.suspendedAt]: at(0), [annotationKeys.podName]: "my-sandbox" } },
    });
    expect(planSandbox(observe({ sandbox: resumed }))).toMatchObject({ stamp: { [annotationKeys.suspendedAt]: null } });
    expect(planSandbox(observe())).toMatchObject({ stamp: {} });
  });
});

describe("planSandbox, start from a snapshot", () => {
  const spec = { restoreFrom: { snapshotName: "snap" } };
  const from = { name: "snap", uid: "uid-snap" };
  const named = (status: object = {}) => aSandbox({ spec, status: { restoredFrom: from, ...status } });
  const owned = (status: object = {}, wish: object = {}) =>
    aSandbox({ spec: { ...spec, ...wish }, status: { podUID: "pod-my-sandbox", restoredFrom: from, ...status } });
  const ready = aSnapshot("ready");

  test("planSandbox: a snapshot that is not ready is waited for, with its claims and without a Pod", () => {
    const plan = planSandbox(observe({ sandbox: aSandbox({ spec }), snapshot: aSnapshot("saving") }));
    expect(plan).toMatchObject({ kind: "live", restore: { step: "wait" } });
    expect(plan.kind === "live" && plan.pod.action).toBeUndefined();
  });
  test("planSandbox: the status names the snapshot before a Pod is made", () => {
    const plan = planSandbox(observe({ sandbox: aSandbox({ spec }), snapshot: ready }));
    expect(plan).toMatchObject({
      kind: "note-restore",
      status: { restoredFrom: from, conditions: [{ type: "Ready", status: "False", reason: "SandboxRestoring" }] },
    });
    const next = planSandbox(observe({ sandbox: named(), snapshot: ready }));
    expect(next).toMatchObject({ kind: "live", pod: { action: { do: "create-pod" } } });
  });
  test("planSandbox: a Sandbox that is held asleep names no snapshot", () => {
    const sandbox = aSandbox({ spec: { ...spec, operatingMode: "Suspended" } });
    expect(planSandbox(observe({ sandbox, snapshot: ready })).kind).toBe("live");
  });
  test("planSandbox: without its snapshot a Sandbox makes no Pod, and one that has started needs none", () => {
    const lost = planSandbox(observe({ sandbox: named() }));
    expect(lost).toMatchObject({ kind: "live", sleep: { stage: { name: "restore-failed" } } });
    expect(lost.kind === "live" && lost.pod.action).toBeUndefined();
    const started = planSandbox(observe({ sandbox: named({ restoredFrom: { ...from, startedAt: at(1) } }) }));
    expect(started).toMatchObject({ kind: "live", pod: { action: { do: "create-pod" } } });
  });
  test("planSandbox: that it has started is written before its Pod goes", () => {
    const stopping = owned({}, { operatingMode: "Suspended" });
    const startedAt = { restoredFrom: { ...from, startedAt: at(0) } };
    expect(planSandbox(observe({ sandbox: stopping, tracked: aPod() }))).toMatchObject({
      kind: "note-restore",
      status: startedAt,
    });
    const expiring = owned({}, { shutdownTime: at(0) });
    expect(planSandbox(observe({ sandbox: expiring, tracked: aPod() }))).toMatchObject({
      kind: "mark-expired",
      status: startedAt,
    });
    expect(planSandbox(observe({ sandbox: owned(), tracked: aPod() }))).toMatchObject({
      kind: "live",
      restore: { step: "started", ...startedAt },
    });
  });
  test("planSandbox: a Pod that says it is of a Sandbox with a snapshot, and was not made by its controller, goes", () => {
    const forged = aPod({ metadata: { uid: "forged" } });
    expect(planSandbox(observe({ sandbox: named(), tracked: forged, snapshot: ready }))).toMatchObject({
      pod: { action: { do: "delete-unnamed-pod" } },
    });
  });
  test("planSandbox: a Sandbox with a snapshot adopts no Pod", () => {
    const sandbox = named();
    const labels = { [labelKeys.sandboxNameHash]: nameHash("my-sandbox") };
    const free = aPod({ metadata: { ownerReferences: [], labels } });
    expect(planSandbox(observe({ sandbox, tracked: free, snapshot: ready }))).toMatchObject({
      pod: { failure: { kind: "refused", message: expect.stringContaining("starts from a snapshot") } },
    });
  });
  test("planSandbox: giving up the memory of a snapshot counts as activity", () => {
    const sandbox = aSandbox({
      metadata: { annotations: { [annotationKeys.coldStart]: from.uid } },
      spec: { ...spec, autoSuspension: { inactivityTimeoutSeconds: 60 } },
      status: { restoredFrom: from, conditions: [aCondition("Ready", "False", { reason: "RestoreFailed" })] },
    });
    expect(planSandbox(observe({ sandbox, snapshot: ready }))).toMatchObject({
      kind: "live",
      stamp: { [annotationKeys.lastActivityAt]: expect.any(String) },
      pod: { action: { do: "create-pod" } },
    });
  });
});
