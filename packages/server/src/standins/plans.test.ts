import type { ClusterRole, Namespace, Pod } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planNamespaceDeletion } from "./namespace-deletion/plan.ts";
import { planPodGarbage } from "./pod-garbage/controller.ts";
import { planAggregation } from "./role-aggregation/controller.ts";
import { planRouterService } from "./router-service/plan.ts";
import { planNamespaceAccounts } from "./service-accounts/controller.ts";

const nowMs = Date.parse("2026-01-01T00:00:00Z");
const alive: Namespace = {
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name: "a" },
  spec: { finalizers: ["kubernetes"] },
};
const ending: Namespace = { ...alive, metadata: { name: "a", deletionTimestamp: "2026-01-01T00:00:00Z" } };
const left = { resource: "pods.", count: 2, finalizers: { "x.io/f": 1 } };

test("planNamespaceDeletion: keeps, empties and lets go", () => {
  expect(planNamespaceDeletion({ namespace: alive, remaining: [], nowMs })).toEqual({ kind: "keep" });
  expect(planNamespaceDeletion({ namespace: ending, remaining: [{ ...left, count: 0 }], nowMs })).toEqual({
    kind: "finalize",
    finalizers: [],
  });
  expect(planNamespaceDeletion({ namespace: ending, remaining: [left], nowMs })).toMatchObject({
    kind: "empty",
    conditions: [
      {
        type: "NamespaceContentRemaining",
        status: "True",
        message: "Some resources are remaining: pods. has 2 resource instances",
      },
      {
        type: "NamespaceFinalizersRemaining",
        status: "True",
        message: "Some content in the namespace has finalizers remaining: x.io/f in 1 resource instances",
      },
    ],
  });
});

test("planNamespaceAccounts: makes what is missing, follows a changed authority, leaves an ending namespace", () => {
  const observed = { namespace: alive, account: undefined, rootCa: undefined, caBundlePem: "ca" };
  expect(planNamespaceAccounts(observed).map((action) => action.do)).toEqual(["create-account", "create-root-ca"]);
  const rootCa = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "kube-root-ca.crt" },
    data: { "ca.crt": "old" },
  } as const;
  expect(planNamespaceAccounts({ ...observed, rootCa }).map((action) => action.do)).toEqual([
    "create-account",
    "update-root-ca",
  ]);
  expect(planNamespaceAccounts({ ...observed, namespace: ending })).toEqual([]);
});

const placed = (nodeName: string, deletionTimestamp?: string): Pod => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "p", ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }) },
  spec: { containers: [], nodeName },
});

test.each([
  ["on a node that is there", placed("n"), true, "keep"],
  ["on a node that is gone", placed("n"), false, "delete"],
  ["waiting", placed(""), false, "keep"],
  ["waiting and to go", placed("", "2026-01-01T00:00:00Z"), false, "delete"],
])("planPodGarbage: %s", (_title, pod, nodeExists, expected) => {
  expect(planPodGarbage(pod, nodeExists)).toBe(expected);
});

test("planRouterService: makes Service and Pod, then reports it Running, then rests", () => {
  const observed = { namespace: "a", isWanted: true, service: undefined, pod: undefined, address: "10.0.0.1", nowMs };
  const [first, second] = planRouterService(observed);
  expect([first?.do, second?.do]).toEqual(["create-service", "create-pod"]);
  if (first?.do !== "create-service" || second?.do !== "create-pod") throw new Error("unreachable");
  const made = {
    ...observed,
    service: first.service,
    pod: { ...second.pod, metadata: { ...second.pod.metadata, uid: "u" } },
  };
  const [third] = planRouterService(made);
  if (third?.do !== "set-pod-status") throw new Error("the pod was not reported");
  expect(third.status).toMatchObject({ phase: "Running", podIP: "10.0.0.1" });
  expect(planRouterService({ ...made, pod: { ...made.pod, status: third.status }, nowMs: nowMs + 60_000 })).toEqual([]);
  expect(planRouterService({ ...observed, isWanted: false })).toEqual([]);
});

test("planAggregation: the union of the selected roles, once each", () => {
  const role = (name: string, part: Partial<ClusterRole>): ClusterRole => ({
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    metadata: { name, labels: { to: "x" } },
    ...part,
  });
  const rule = { apiGroups: [""], resources: ["pods"], verbs: ["get"] };
  const whole: ClusterRole = {
    ...role("whole", {}),
    metadata: { name: "whole" },
    aggregationRule: { clusterRoleSelectors: [{ matchLabels: { to: "x" } }] },
  };
  expect(planAggregation(whole, [whole, role("b", { rules: [rule] }), role("a", { rules: [rule] })])).toEqual([rule]);
  expect(planAggregation(role("plain", {}), [])).toBeUndefined();
});
