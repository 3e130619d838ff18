import { annotationKeys } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aPod, aSandbox, at, epochMs, ownedBy, ownedByExtension } from "../testing/builders.ts";
import { type PodObserved, planPod, trackedPodName } from "./plan.ts";

function observe(parts: Partial<PodObserved> = {}): PodObserved {
  return {
    sandbox: aSandbox(),
    mode: "Running",
    stage: { name: "none" },
    pods: [],
    tracked: undefined,
    made: undefined,
    createBlocked: false,
    nowMs: epochMs,
    ...parts,
  };
}

describe("trackedPodName", () => {
  const rows: [string, Record<string, string> | undefined, string][] = [
    ["no annotation", undefined, "my-sandbox"],
    ["unrelated annotation", { other: "x" }, "my-sandbox"],
    ["empty annotation", { [annotationKeys.podName]: "" }, "my-sandbox"],
    ["set annotation", { [annotationKeys.podName]: "adopted" }, "adopted"],
  ];
  test.each(rows)("trackedPodName: P16 %s", (_title, annotations, expected) => {
    expect(trackedPodName(aSandbox(annotations === undefined ? {} : { metadata: { annotations } }))).toBe(expected);
  });
});

describe("planPod", () => {
  test("planPod: a missing Pod is created under the Sandbox's name", () => {
    const plan = planPod(observe());
    expect(plan).toMatchObject({
      tracked: "my-sandbox",
      action: { do: "create-pod", pod: { metadata: { name: "my-sandbox" } } },
    });
  });

  test("planPod: core N3 no Pod is created while its claims were refused", () => {
    expect(planPod(observe({ createBlocked: true })).action).toBeUndefined();
  });

  test("planPod: P10 two owned Pods are refused in either mode", () => {
    const pods = [aPod(), aPod({ name: "second" })];
    for (const mode of ["Running", "Suspended"] as const) {
      const plan = planPod(observe({ pods, tracked: pods[0], mode }));
      expect(plan.action).toBeUndefined();
      expect(plan.failure).toMatchObject({
        kind: "multiple-pods",
        message: "multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod",
      });
    }
  });

  test("planPod: the tracked Pod counts once, labelled or not", () => {
    const pod = aPod({ metadata: { labels: {} } });
    expect(planPod(observe({ pods: [pod], tracked: pod })).failure).toBeUndefined();
    expect(planPod(observe({ tracked: pod })).pod).toBe(pod);
  });

  test("planPod: P11 ownership is by UID, so a predecessor's Pod is somebody else's", () => {
    const tracked = aPod({ metadata: { ownerReferences: [ownedBy("Sandbox", "my-sandbox", "old-uid")] } });
    const plan = planPod(observe({ pods: [tracked], tracked }));
    expect(plan.failure?.message).toBe(
      'pod "my-sandbox" is owned by Sandbox/my-sandbox (UID: old-uid), not by sandbox "my-sandbox"',
    );
    expect(plan.tracked).toBeNull();
  });

  test("planPod: P8, P9 an owned survivor wins over a stale annotation and an adoptable target", () => {
    const sandbox = aSandbox({ metadata: { annotations: { [annotationKeys.podName]: "target" } } });
    const target = aPod({
      name: "target",
      metadata: { ownerReferences: [], labels: { "agents.x-k8s.io/adoptable": "true" } },
    });
    const plan = planPod(observe({ sandbox, pods: [aPod()], tracked: target }));
    expect(plan.pod?.metadata.name).toBe("my-sandbox");
    expect(plan.tracked).toBe("my-sandbox");
    expect(plan.action).toBeUndefined();
  });

  test.each([
    ["adoptable label", { "agents.x-k8s.io/adoptable": "true" }],
    ["tracking label", { "agents.x-k8s.io/sandbox-name-hash": "374de8f5" }],
  ])("planPod: P5 adoption by %s persists the reference even when metadata is equal", (_title, labels) => {
    const tracked = aPod({ metadata: { ownerReferences: [], labels } });
    const { action } = planPod(observe({ tracked }));
    expect(action).toMatchObject({
      do: "patch-pod",
      adopt: { resourceVersion: "1", ownerReferences: [ownedBy("Sandbox", "my-sandbox")] },
    });
  });

  test("planPod: adoption keeps foreign references", () => {
    const other = { ...ownedBy("Job", "j"), controller: false };
    const tracked = aPod({ metadata: { ownerReferences: [other], labels: { "agents.x-k8s.io/adoptable": "true" } } });
    const { action } = planPod(observe({ tracked }));
    expect(action?.do === "patch-pod" && action.adopt?.ownerReferences).toEqual([
      other,
      ownedBy("Sandbox", "my-sandbox"),
    ]);
  });

  test("planPod: P6 an unlabelled unowned Pod is refused and the annotation kept", () => {
    const plan = planPod(observe({ tracked: aPod({ metadata: { ownerReferences: [], labels: {} } }) }));
    expect(plan.failure?.message).toBe(
      'cannot adopt unowned pod "my-sandbox": missing required pool authorization label ("agents.x-k8s.io/adoptable") or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")',
    );
    expect(plan.tracked).toBeUndefined();
  });

  test("planPod: P7 suspended deletes the owned Pod by UID and keeps the annotation until it is gone", () => {
    const pod = aPod();
    const plan = planPod(observe({ mode: "Suspended", tracked: pod }));
    expect(plan.action).toEqual({ do: "delete-pod", name: "my-sandbox", uid: "pod-my-sandbox" });
    expect(plan.tracked).toBeUndefined();
    const terminating = aPod({ metadata: { deletionTimestamp: at(1) } });
    expect(planPod(observe({ mode: "Suspended", tracked: terminating }))).toMatchObject({ pod: terminating });
    expect(planPod(observe({ mode: "Suspended", tracked: terminating })).action).toBeUndefined();
    expect(planPod(observe({ mode: "Suspended" }))).toEqual({ tracked: null, recovery: { kind: "none" } });
  });

  test("planPod: P7 suspended never touches a Pod that is not ours", () => {
    for (const ownerReferences of [[], [ownedBy("Job", "j")]]) {
      const plan = planPod(observe({ mode: "Suspended", tracked: aPod({ metadata: { ownerReferences } }) }));
      expect(plan.action).toBeUndefined();
      expect(plan.tracked).toBeNull();
    }
  });

  test("planPod: P12 an owned terminating Pod while Running is waited for", () => {
    const plan = planPod(observe({ tracked: aPod({ metadata: { deletionTimestamp: at(1) } }) }));
    expect(plan.action).toBeUndefined();
    expect(plan.pod).toBeDefined();
  });
});

describe("planPod, Pods that are not named", () => {
  const named = aSandbox({ status: { podUID: "pod-my-sandbox" } });
  const stray = aPod({ name: "stray" });
  const squatter = aPod({ metadata: { uid: "pod-of-a-stranger" } });

  test("planPod: beside the named Pod one that only refers to the Sandbox is nothing", () => {
    const plan = planPod(observe({ sandbox: named, pods: [aPod(), stray], tracked: aPod() }));
    expect(plan).toMatchObject({ pod: { metadata: { uid: "pod-my-sandbox" } }, recovery: { kind: "none" } });
    expect([plan.action, plan.failure]).toEqual([undefined, undefined]);
  });

  test("planPod: where the named Pod is gone, only the one in the way of the next goes", () => {
    expect(planPod(observe({ sandbox: named, pods: [stray] })).action?.do).toBe("create-pod");
    const plan = planPod(observe({ sandbox: named, pods: [stray, squatter], tracked: squatter }));
    expect(plan.action).toEqual({ do: "delete-unnamed-pod", pod: squatter });
    expect(plan.pod).toBeUndefined();
    const leaving = aPod({ metadata: { uid: "pod-of-a-stranger", deletionTimestamp: at(1) } });
    expect(planPod(observe({ sandbox: named, tracked: leaving }))).toEqual({ recovery: { kind: "none" } });
  });

  test("planPod: a sleeping Sandbox has every one of them taken away, and no Pod", () => {
    const plan = planPod(observe({ sandbox: named, mode: "Suspended", pods: [stray] }));
    expect(plan).toMatchObject({ action: { do: "delete-unnamed-pod", pod: stray }, tracked: null });
    expect(plan.pod).toBeUndefined();
  });

  test("planPod: what this process has just made counts before the status names it", () => {
    const made = "pod-of-a-stranger";
    expect(planPod(observe({ sandbox: named, made, tracked: squatter })).pod).toBe(squatter);
    expect(planPod(observe({ made, tracked: squatter, pods: [stray] })).failure).toBeUndefined();
  });

  test("planPod: a Sandbox that has had a Pod adopts only that one", () => {
    const labels = { "agents.x-k8s.io/adoptable": "true" };
    const released = aPod({ metadata: { ownerReferences: [], labels } });
    expect(planPod(observe({ sandbox: named, tracked: released })).action).toHaveProperty("adopt");
    const offered = aPod({ metadata: { ownerReferences: [], labels, uid: "pod-of-a-stranger" } });
    expect(planPod(observe({ sandbox: named, tracked: offered })).failure?.kind).toBe("refused");
    const elsewhere = aPod({ name: "other", metadata: { ownerReferences: [], labels } });
    expect(planPod(observe({ sandbox: named, tracked: elsewhere }))).toMatchObject({
      failure: { kind: "refused" },
      tracked: null,
    });
  });
});

describe("planPod, podFailurePolicy", () => {
  const failed = { phase: "Failed", conditions: [{ type: "Ready", status: "False", lastTransitionTime: at(100) }] };
  const recreate = { spec: { podFailurePolicy: { type: "Recreate" as const, retriesMax: 2, backoffSeconds: 10 } } };
  const pod = aPod({ status: failed });
  test("podFailurePolicy: without it a failed Pod stays", () => {
    expect(planPod(observe({ tracked: pod })).action).toBeUndefined();
  });
  test("podFailurePolicy: the replacement waits for the backoff, then records and deletes", () => {
    const sandbox = aSandbox(recreate);
    expect(planPod(observe({ sandbox, tracked: pod, nowMs: epochMs + 105_000 })).recovery).toMatchObject({
      kind: "wait",
      untilMs: epochMs + 110_000,
      attempt: 1,
    });
    const plan = planPod(observe({ sandbox, tracked: pod, nowMs: epochMs + 110_000 }));
    expect(plan.action?.do).toBe("delete-pod");
    expect(plan.record).toEqual({ [annotationKeys.podReplacements]: "1@pod-my-sandbox" });
  });
  test("podFailurePolicy: a crash between record and delete does not count twice", () => {
    const sandbox = aSandbox({
      ...recreate,
      metadata: { annotations: { [annotationKeys.podReplacements]: "1@pod-my-sandbox" } },
    });
    expect(planPod(observe({ sandbox, tracked: pod, nowMs: epochMs + 110_000 })).record).toEqual({
      [annotationKeys.podReplacements]: "1@pod-my-sandbox",
    });
  });
  test("podFailurePolicy: the delay doubles and the limit ends it", () => {
    const second = aSandbox({
      ...recreate,
      metadata: { annotations: { [annotationKeys.podReplacements]: "1@earlier" } },
    });
    expect(planPod(observe({ sandbox: second, tracked: pod, nowMs: epochMs + 110_000 })).recovery).toMatchObject({
      kind: "wait",
      untilMs: epochMs + 120_000,
    });
    const spent = aSandbox({
      ...recreate,
      metadata: { annotations: { [annotationKeys.podReplacements]: "2@earlier" } },
    });
    expect(planPod(observe({ sandbox: spent, tracked: pod, nowMs: epochMs + 900_000 })).recovery).toEqual({
      kind: "none",
    });
  });
});

describe("planPod, extension labels", () => {
  const labels = {
    "agents.x-k8s.io/warm-pool-sandbox": "p",
    "agents.x-k8s.io/sandbox-template-ref-hash": "t",
    "agents.x-k8s.io/claim-uid": "c",
  };
  const labelsOf = (owner: ReturnType<typeof ownedBy>[]) => {
    const plan = planPod(observe({ sandbox: aSandbox({ metadata: { labels, ownerReferences: owner } }) }));
    return plan.action?.do === "create-pod" ? plan.action.pod.metadata.labels : undefined;
  };
  test("extension labels: P13 a pool's member gets both, a claim's Sandbox the template and the claim, anyone else none", () => {
    expect(labelsOf([ownedByExtension("SandboxWarmPool", "pool")])).toMatchObject({
      "agents.x-k8s.io/warm-pool-sandbox": "p",
      "agents.x-k8s.io/sandbox-template-ref-hash": "t",
    });
    expect(labelsOf([ownedByExtension("SandboxClaim", "c")])).toEqual({
      "agents.x-k8s.io/sandbox-name-hash": "374de8f5",
      "agents.x-k8s.io/sandbox-template-ref-hash": "t",
      "agents.x-k8s.io/claim-uid": "c",
    });
    expect(labelsOf([ownedBy("SandboxClaim", "c")])).toEqual({ "agents.x-k8s.io/sandbox-name-hash": "374de8f5" });
    expect(labelsOf([])).toEqual({ "agents.x-k8s.io/sandbox-name-hash": "374de8f5" });
  });
  test("extension labels: references of the older version count too", () => {
    const old = { ...ownedByExtension("SandboxWarmPool", "pool"), apiVersion: "extensions.agents.x-k8s.io/v1alpha1" };
    expect(labelsOf([old])).toHaveProperty(["agents.x-k8s.io/warm-pool-sandbox"], "p");
  });
});
