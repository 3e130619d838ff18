import type { Sandbox, SandboxTemplate } from "@agent-sandbox/api";
import { labelKeys } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aCondition, aMember, aPool, aTemplate, at, epochMs, ownedByExtension } from "../testing/builders.ts";
import { blueprintHash, securePodSpec } from "./blueprint.ts";
import { type PoolObserved, planPool } from "./plan.ts";

const template = aTemplate();
const hashed = (sandbox: Sandbox, of: SandboxTemplate): Sandbox => ({
  ...sandbox,
  metadata: {
    ...sandbox.metadata,
    labels: { ...sandbox.metadata.labels, [labelKeys.templateHash]: blueprintHash(of) },
  },
});
const fresh = (name: string, parts: Parameters<typeof aMember>[1] = {}) => hashed(aMember(name, parts), template);
const older = aTemplate({ spec: { podTemplate: { spec: { containers: [{ name: "main", image: "old" }] } } } });
const stale = (name: string, parts: Parameters<typeof aMember>[1] = {}) =>
  hashed(aMember(name, { ...parts, spec: { podTemplate: { spec: securePodSpec(older) } } }), older);

function observe(parts: Partial<PoolObserved> = {}): PoolObserved {
  return {
    pool: aPool({ spec: { replicas: 3 } }),
    template,
    templateState: { kind: "resolved" },
    members: [],
    unschedulable: new Set(),
    unresolved: 0,
    holdMs: 0,
    readinessGraceMs: 300_000,
    unschedulableRecheckMs: 60_000,
    batchMax: 300,
    nowMs: epochMs,
    ...parts,
  };
}

const names = (plan: ReturnType<typeof planPool>) =>
  plan.deletions.map(({ sandbox, why }) => `${why}:${sandbox.metadata.name}`);

describe("planPool, population", () => {
  test("planPool: R59 absent replicas mean one, zero deletes all", () => {
    expect(planPool(observe({ pool: aPool() })).creations).toBe(1);
    const plan = planPool(observe({ pool: aPool({ spec: { replicas: 0 } }), members: [fresh("a"), fresh("b")] }));
    expect(plan).toMatchObject({ creations: 0 });
    expect(plan.deletions).toHaveLength(2);
  });
  test("planPool: R45 a terminating member is not replaced and not counted in status", () => {
    const members = [fresh("a"), fresh("b"), fresh("c", { metadata: { deletionTimestamp: at(0) } })];
    const plan = planPool(observe({ members }));
    expect(plan.creations).toBe(0);
    expect(plan.status.replicas).toBe(2);
  });
  test("planPool: R43 creates without an answer count until they are looked up", () => {
    expect(planPool(observe({ unresolved: 2 })).creations).toBe(1);
  });
  test("planPool: R57 members of another controller are ignored", () => {
    const other = fresh("x", { metadata: { ownerReferences: [ownedByExtension("SandboxWarmPool", "other")] } });
    const plan = planPool(observe({ members: [other] }));
    expect(plan).toMatchObject({ creations: 3, deletions: [] });
    expect(plan.status).not.toHaveProperty("replicas");
  });
  test("planPool: excess goes not Ready first, then newest", () => {
    const members = [
      fresh("old", { metadata: { creationTimestamp: at(0) } }),
      fresh("new", { metadata: { creationTimestamp: at(10) } }),
      fresh("unready", { ready: false }),
    ];
    expect(names(planPool(observe({ pool: aPool({ spec: { replicas: 1 } }), members })))).toEqual([
      "excess:unready",
      "excess:new",
    ]);
  });
  test("planPool: batches are bounded", () => {
    expect(planPool(observe({ pool: aPool({ spec: { replicas: 500 } }), batchMax: 7 })).creations).toBe(7);
  });
  test("planPool: status counts Ready members, names the selector and omits zeros", () => {
    const members = [
      fresh("a"),
      fresh("b", { ready: false }),
      fresh("c", { status: { conditions: [aCondition("Ready", "Unknown")] } }),
    ];
    expect(planPool(observe({ members })).status).toMatchObject({
      replicas: 3,
      readyReplicas: 1,
      selector: "agents.x-k8s.io/warm-pool-sandbox=91dd7983",
      observedGeneration: 1,
    });
    expect(planPool(observe()).status).not.toHaveProperty("readyReplicas");
  });
  test("planPool: a missing template blocks creation and says so", () => {
    const plan = planPool(
      observe({ template: undefined, templateState: { kind: "missing", message: 'SandboxTemplate "tpl" not found' } }),
    );
    expect(plan.creations).toBe(0);
    expect(plan.status.conditions?.find(({ type }) => type === "TemplateResolved")).toMatchObject({
      status: "False",
      reason: "TemplateNotFound",
    });
  });
  test("planPool: R53 a hold stops creation and asks to be woken, but not the removal of stuck members", () => {
    const members = [fresh("stuck", { ready: false })];
    const plan = planPool(observe({ members, holdMs: 5_000, nowMs: epochMs + 400_000 }));
    expect(plan).toMatchObject({ creations: 0, wakeMs: 5_000 });
    expect(names(plan)).toEqual(["stuck:stuck"]);
  });
});

describe("planPool, orphans and staleness", () => {
  const orphan = (of: Sandbox): Sandbox => ({ ...of, metadata: { ...of.metadata, ownerReferences: [] } });
  const equal = orphan(hashed(aMember("o", { spec: { podTemplate: { spec: securePodSpec(template) } } }), template));
  test("planPool: a genuine orphan is adopted", () => {
    expect(planPool(observe({ members: [equal] })).repairs).toMatchObject([
      { adopt: true, sandbox: { metadata: { name: "o" } } },
    ]);
  });
  test("planPool: R55 an orphan that differs, or cannot be compared, is left alone", () => {
    const forged = orphan(hashed(stale("f"), template));
    expect(planPool(observe({ members: [forged] }))).toMatchObject({ repairs: [], deletions: [] });
    expect(planPool(observe({ members: [equal], template: undefined })).repairs).toEqual([]);
  });
  test("planPool: R58 Recreate deletes stale members at once and replaces them only when they are gone", () => {
    const pool = aPool({ spec: { replicas: 2, updateStrategy: { type: "Recreate" } } });
    const plan = planPool(observe({ pool, members: [stale("a"), fresh("b")] }));
    expect(names(plan)).toEqual(["stale:a"]);
    expect(plan.creations).toBe(0);
  });
  test("planPool: OnReplenish keeps stale members", () => {
    expect(planPool(observe({ pool: aPool({ spec: { replicas: 1 } }), members: [stale("a")] })).deletions).toEqual([]);
  });
  test("planPool: metadata-only edits and a hash from another encoder are no drift", () => {
    const edited = aTemplate({
      spec: { podTemplate: { metadata: { labels: { a: "b" } }, spec: template.spec.podTemplate.spec } },
    });
    const pool = aPool({ spec: { replicas: 1, updateStrategy: { type: "Recreate" } } });
    const member = hashed(aMember("a", { spec: { podTemplate: { spec: securePodSpec(template) } } }), template);
    expect(planPool(observe({ pool, template: edited, members: [member] })).deletions).toEqual([]);
  });
  test("planPool: pointing the pool at an identical template of another name recreates", () => {
    const pool = aPool({ spec: { replicas: 1, updateStrategy: { type: "Recreate" } } });
    expect(names(planPool(observe({ pool, template: aTemplate({ name: "tpl2" }), members: [fresh("a")] })))).toEqual([
      "stale:a",
    ]);
  });
  test.each<[string, Partial<SandboxTemplate["spec"]>]>([
    ["volume claim", { volumeClaimTemplates: [{ metadata: { name: "v" }, spec: {} }] }],
    ["service", { service: true }],
    ["image", { podTemplate: { spec: { containers: [{ name: "main", image: "new" }] } } }],
    ["snapshot", { restoreFrom: { snapshotName: "s" } }],
    ["inactivity timeout", { autoSuspension: { inactivityTimeoutSeconds: 60 } }],
    ["wake policy", { wakePolicy: "Never" }],
    ["suspension strategy", { suspensionStrategy: { type: "Freeze" } }],
    ["failure policy", { podFailurePolicy: { type: "Recreate" } }],
  ])("planPool: a changed %s is drift", (_title, spec) => {
    const pool = aPool({ spec: { replicas: 1, updateStrategy: { type: "Recreate" } } });
    const member = hashed(aMember("a", { spec: { podTemplate: { spec: securePodSpec(template) } } }), template);
    expect(names(planPool(observe({ pool, template: aTemplate({ spec }), members: [member] })))).toEqual(["stale:a"]);
  });
});

describe("planPool, rolling update", () => {
  const pool = (maxSurge: number | string, maxUnavailable: number | string) =>
    aPool({
      spec: { replicas: 4, updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxSurge, maxUnavailable } } },
    });
  const four = ["a", "b", "c", "d"].map((name) => stale(name));
  test("RollingUpdate: a surge adds before it takes", () => {
    const plan = planPool(observe({ pool: pool(1, 0), members: four }));
    expect(plan.creations).toBe(1);
    expect(plan.deletions).toEqual([]);
    const next = planPool(observe({ pool: pool(1, 0), members: [...four, fresh("e")] }));
    expect(names(next)).toEqual(["stale:a"]);
    expect(next.creations).toBe(0);
  });
  test("RollingUpdate: what may be missing bounds what goes", () => {
    expect(planPool(observe({ pool: pool(0, 2), members: four })).deletions).toHaveLength(2);
    expect(planPool(observe({ pool: pool(0, "50%"), members: four })).deletions).toHaveLength(2);
    expect(planPool(observe({ pool: pool(0, 0), members: four })).deletions).toHaveLength(1);
  });
  test("RollingUpdate: status counts updated members and a finished rollout is quiet", () => {
    const members = ["e", "f", "g", "h"].map((name) => fresh(name));
    const plan = planPool(observe({ pool: pool(1, 0), members }));
    expect(plan).toMatchObject({ creations: 0, deletions: [], status: { updatedReplicas: 4 } });
  });
});

describe("planPool, stuck members", () => {
  const one = aPool({ spec: { replicas: 1 } });
  const late = epochMs + 301_000;
  test("planPool: R51 a stuck member is replaced, an unschedulable one held", () => {
    const members = [fresh("a", { ready: false })];
    const replaced = planPool(observe({ pool: one, members, nowMs: late }));
    expect(names(replaced)).toEqual(["stuck:a"]);
    expect(replaced.creations).toBe(0);
    const held = planPool(observe({ pool: one, members, nowMs: late, unschedulable: new Set(["a"]) }));
    expect(held).toMatchObject({ deletions: [], held: 1, wakeMs: 60_000 });
    expect(held.heldNote).toBe(
      "1/1 sandboxes are unschedulable past the 5m0s readiness grace period; holding them instead of replacing (replacements would be equally unschedulable)",
    );
  });
  test("planPool: R52 within the grace period it comes back when the first one ends", () => {
    expect(
      planPool(observe({ pool: one, members: [fresh("a", { ready: false })], nowMs: epochMs + 100_000 })).graceMs,
    ).toBe(202_000);
    expect(planPool(observe({ pool: one, members: [fresh("a")] })).graceMs).toBeUndefined();
  });
  test("planPool: the grace period counts from when a member stopped being Ready", () => {
    const status = { conditions: [aCondition("Ready", "False", { lastTransitionTime: at(290) })] };
    expect(planPool(observe({ pool: one, members: [fresh("a", { status })], nowMs: late })).deletions).toEqual([]);
  });
});
