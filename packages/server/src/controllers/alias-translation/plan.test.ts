import type { SandboxWarmPool, SandboxWarmPoolAlias } from "@agent-sandbox/api";
import { controllerReference, poolSpecOf, sandboxWarmPoolAliases, sandboxWarmPools } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type AliasObserved, planAlias, type Translation } from "./plan.ts";

const namespace = "n";

function alias(status?: SandboxWarmPoolAlias["status"], generation = 1): SandboxWarmPoolAlias {
  return {
    apiVersion: "agents.x-k8s.io/v1alpha1",
    kind: "SandboxWarmPool",
    metadata: { name: "p", namespace, uid: "alias-uid", generation },
    spec: { template: "t", size: 3 },
    ...(status !== undefined && { status }),
  };
}

function real(replicas: number, owner: "alias" | "nobody" | "namesake", uid = "real-uid"): SandboxWarmPool {
  const metadata = { name: "p", namespace, uid: owner === "namesake" ? "earlier-uid" : "alias-uid" };
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: {
      name: "p",
      namespace,
      uid,
      ...(owner !== "nobody" && { ownerReferences: [controllerReference(sandboxWarmPoolAliases, { metadata })] }),
    },
    spec: { replicas, sandboxTemplateRef: { name: "t" } },
    status: {
      conditions: [
        {
          type: "Ready",
          status: "True",
          reason: "MembersReady",
          message: "3 of 3",
          lastTransitionTime: "2026-01-01T00:00:00Z",
        },
      ],
    },
  };
}

function plan(of: SandboxWarmPoolAlias, present?: SandboxWarmPool, translation?: Translation<SandboxWarmPool>) {
  const observed: AliasObserved<SandboxWarmPoolAlias, SandboxWarmPool> = {
    alias: of,
    real: present,
    aliasResource: sandboxWarmPoolAliases,
    realResource: sandboxWarmPools,
    translation: translation ?? { kind: "spec", spec: poolSpecOf(of) },
    readyType: "Ready",
    copied: { readyReplicas: 3 },
    nowMs: 0,
  };
  return planAlias(observed);
}

const conditionsOf = ({ status }: ReturnType<typeof plan>) =>
  status?.conditions?.map((condition) => `${condition.type}=${condition.status} ${condition.reason}`);

test("planAlias: without an object, makes one that it owns", () => {
  expect(plan(alias())).toMatchObject({
    actions: [
      {
        do: "create",
        object: {
          apiVersion: "extensions.agents.x-k8s.io/v1beta1",
          metadata: { name: "p", namespace, ownerReferences: [{ uid: "alias-uid", controller: true }] },
          spec: { replicas: 3, sandboxTemplateRef: { name: "t" } },
        },
      },
    ],
  });
});

test("planAlias: a pool that is needed comes first", () => {
  const pool = real(0, "nobody");
  const { actions } = plan(alias(), undefined, { kind: "spec", spec: pool.spec, pool });
  expect(actions.map((action) => action.do)).toEqual(["create-pool", "create"]);
});

test("planAlias: what cannot be translated is said and nothing is made", () => {
  const planned = plan(alias(), undefined, {
    kind: "problem",
    problem: { reason: "TemplateNotFound", message: "no t" },
  });
  expect(planned.actions).toEqual([]);
  expect(conditionsOf(planned)).toEqual(["Translated=False TemplateNotFound", "Ready=False TemplateNotFound"]);
});

for (const owner of ["nobody", "namesake"] as const) {
  test(`planAlias: an object of ${owner === "nobody" ? "a stranger" : "an earlier alias"} is left alone`, () => {
    const planned = plan(alias(), real(1, owner));
    expect(planned.actions).toEqual([]);
    expect(conditionsOf(planned)).toEqual(["Translated=False NameTaken", "Ready=False NameTaken"]);
    expect(planned.status?.uid).toBeUndefined();
  });
}

test("planAlias: copies Ready, the uid and what is shown", () => {
  const planned = plan(alias(), real(3, "alias"));
  expect(planned.actions).toEqual([]);
  expect(conditionsOf(planned)).toEqual(["Translated=True Translated", "Ready=True MembersReady"]);
  expect(planned.status).toMatchObject({ uid: "real-uid", observedGeneration: 1, readyReplicas: 3 });
});

test("planAlias: a change of the alias reaches the object once", () => {
  const seen = { uid: "real-uid", observedGeneration: 1 };
  expect(plan(alias(seen, 2), real(5, "alias")).actions).toMatchObject([
    { do: "update", object: { spec: { replicas: 3 } } },
  ]);
  expect(plan(alias(seen, 1), real(5, "alias")).actions).toEqual([]);
});

test("planAlias: once its object is gone, or another has the name, it goes too", () => {
  const seen = { uid: "real-uid", observedGeneration: 1 };
  const expected = [{ do: "delete-alias", lostUid: "real-uid" }];
  expect(plan(alias(seen)).actions).toEqual(expected);
  expect(plan(alias(seen), real(3, "nobody", "another-uid")).actions).toEqual(expected);
});
