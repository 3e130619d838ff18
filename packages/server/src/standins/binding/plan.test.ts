import type { Node, Pod } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planBinding } from "./plan.ts";
import { add, podRequests } from "./pod-requests.ts";

function pod(memory = "100Mi", part: Partial<NonNullable<Pod["spec"]>> = {}): Pod {
  const containers = [{ name: "c", resources: { requests: { cpu: "100m", memory } } }];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace: "a", name: "p", uid: "u" },
    spec: { containers, ...part },
  };
}

function node(part: Partial<Node> = {}): Node {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "n", labels: { zone: "x" } },
    status: {
      allocatable: { cpu: "2", memory: "1Gi", pods: "10" },
      conditions: [{ type: "Ready", status: "True" }],
    },
    ...part,
  };
}

function plan(wanted: Pod, { nodes = [node()], present = [] as Pod[], phase = undefined as string | undefined } = {}) {
  const claim = (name: string) =>
    phase === undefined
      ? undefined
      : {
          apiVersion: "v1" as const,
          kind: "PersistentVolumeClaim" as const,
          metadata: { name },
          spec: {},
          status: { phase },
        };
  const taken = new Map();
  for (const other of present) add(taken, podRequests(other));
  return planBinding({ pod: wanted, nodes, taken: () => taken, claim });
}

const withClaim = { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "c" } }] };
const bind = { kind: "bind", nodeName: "n" };
const refuse = (message: string) => ({ kind: "refuse", message });

test.each([
  ["room: bound", plan(pod()), bind],
  ["no nodes: says so", plan(pod(), { nodes: [] }), refuse("no nodes available to schedule pods")],
  ["too much memory: names it", plan(pod("2Gi")), refuse("0/1 nodes are available: 1 Insufficient memory.")],
  [
    "what is there counts",
    plan(pod("600Mi"), { present: [pod("500Mi")] }),
    refuse("0/1 nodes are available: 1 Insufficient memory."),
  ],
  [
    "overhead counts: exactly full is one too many",
    plan(pod("1Gi")),
    refuse("0/1 nodes are available: 1 Insufficient memory."),
  ],
  ["overhead counts: room for it is enough", plan(pod("992Mi")), bind],
  ["a runtime class's overhead replaces ours", plan(pod("1Gi", { overhead: { memory: "0" } })), bind],
  [
    "two shortages: both are named",
    plan(pod("1Gi"), { present: Array.from({ length: 20 }, () => pod("1Mi")) }),
    refuse("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods."),
  ],
  [
    "cordoned node",
    plan(pod(), { nodes: [node({ spec: { unschedulable: true } })] }),
    refuse("0/1 nodes are available: 1 node(s) were unschedulable."),
  ],
  [
    "taint",
    plan(pod(), { nodes: [node({ spec: { taints: [{ key: "k", value: "v", effect: "NoSchedule" }] } })] }),
    refuse("0/1 nodes are available: 1 node(s) had untolerated taint {k: v}."),
  ],
  [
    "tolerated taint",
    plan(pod("1Mi", { tolerations: [{ key: "k", operator: "Exists" }] }), {
      nodes: [node({ spec: { taints: [{ key: "k", value: "v", effect: "NoSchedule" }] } })],
    }),
    bind,
  ],
  [
    "selector that does not match",
    plan(pod("1Mi", { nodeSelector: { zone: "y" } })),
    refuse("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
  ],
  [
    "claim that is not there",
    plan(pod("1Mi", withClaim)),
    refuse('0/1 nodes are available: persistentvolumeclaim "c" not found.'),
  ],
  [
    "claim that waits",
    plan(pod("1Mi", withClaim), { phase: "Pending" }),
    refuse("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
  ],
  ["claim that is bound", plan(pod("1Mi", withClaim), { phase: "Bound" }), bind],
  ["a gate: not ours yet", plan(pod("1Mi", { schedulingGates: [{ name: "g" }] })), { kind: "skip" }],
  ["another scheduler: never ours", plan(pod("1Mi", { schedulerName: "mine" })), { kind: "skip" }],
  ["bound already: skipped", plan(pod("1Mi", { nodeName: "n" })), { kind: "skip" }],
])("planBinding: %s", (_title, actual, expected) => {
  expect(actual).toEqual(expected);
});
