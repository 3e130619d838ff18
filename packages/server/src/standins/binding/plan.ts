import {
  type Node,
  type PersistentVolumeClaim,
  type Pod,
  type Taint,
  type Toleration,
  zeroQuantity,
} from "@agent-sandbox/api";
import { matchesNode } from "./node-affinity.ts";
import { type Amounts, amounts, podRequests } from "./pod-requests.ts";

/** The scheduler name that Pods have unless they say otherwise. */
const schedulerName = "default-scheduler";

/** What one pass looks at. */
export interface Observed {
  readonly pod: Pod;
  readonly nodes: readonly Node[];
  /** What Pods take that hold a place on a node: bound and not finished, or bound by an earlier pass and not seen yet. */
  readonly taken: (nodeName: string) => Amounts;
  readonly claim: (name: string) => PersistentVolumeClaim | undefined;
}

/** Where the Pod goes, or why nowhere. */
export type Plan =
  | { readonly kind: "skip" }
  | { readonly kind: "bind"; readonly nodeName: string }
  | { readonly kind: "refuse"; readonly message: string };

/** Decides where a Pod runs by what it asks for and what is free; messages are those of Kubernetes' scheduler. */
export function planBinding(observed: Observed): Plan {
  const { pod, nodes } = observed;
  if (!isWaiting(pod)) return { kind: "skip" };
  const missing = claimFault(observed);
  if (missing !== undefined) return { kind: "refuse", message: `0/${nodes.length} nodes are available: ${missing}.` };
  if (nodes.length === 0) return { kind: "refuse", message: "no nodes available to schedule pods" };
  const requests = podRequests(pod);
  const faults = new Map<string, number>();
  for (const node of nodes) {
    const found = nodeFaults(pod, node, requests, observed.taken(node.metadata.name));
    if (found.length === 0) return { kind: "bind", nodeName: node.metadata.name };
    for (const fault of found) faults.set(fault, (faults.get(fault) ?? 0) + 1);
  }
  const reasons = [...faults].map(([fault, count]) => `${count} ${fault}`).sort();
  return { kind: "refuse", message: `0/${nodes.length} nodes are available: ${reasons.join(", ")}.` };
}

/** Whether the Pod is for us to place. */
export function isWaiting({ metadata, spec, status }: Pod): boolean {
  if (spec === undefined || (spec.nodeName ?? "") !== "" || metadata.deletionTimestamp !== undefined) return false;
  if ((spec.schedulerName ?? schedulerName) !== schedulerName || (spec.schedulingGates?.length ?? 0) > 0) return false;
  return status?.phase !== "Succeeded" && status?.phase !== "Failed";
}

function claimFault({ pod, claim }: Observed): string | undefined {
  for (const { persistentVolumeClaim: source } of pod.spec?.volumes ?? []) {
    if (source === undefined) continue;
    const found = claim(source.claimName);
    if (found === undefined) return `persistentvolumeclaim "${source.claimName}" not found`;
    if (found.metadata.deletionTimestamp !== undefined)
      return `persistentvolumeclaim "${source.claimName}" is being deleted`;
    if (found.status?.phase !== "Bound") return "pod has unbound immediate PersistentVolumeClaims";
  }
  return undefined;
}

function nodeFaults(pod: Pod, node: Node, requests: Amounts, taken: Amounts): string[] {
  if (node.spec?.unschedulable === true) return ["node(s) were unschedulable"];
  const taint = (node.spec?.taints ?? []).find(
    (each) => each.effect !== "PreferNoSchedule" && !isTolerated(each, pod.spec?.tolerations ?? []),
  );
  if (taint !== undefined) return [`node(s) had untolerated taint {${taint.key}: ${taint.value ?? ""}}`];
  const isReady = node.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
  if (!isReady) return ["node(s) were not ready"];
  if (!matchesNode(pod, node)) return ["node(s) didn't match Pod's node affinity/selector"];
  return shortages(node, requests, taken);
}

function shortages(node: Node, requests: Amounts, taken: Amounts): string[] {
  const free = amounts(node.status?.allocatable ?? node.status?.capacity);
  const faults: string[] = [];
  for (const [name, amount] of requests) {
    if (amount.nanos === 0n) continue;
    const left = (free.get(name) ?? zeroQuantity).sub(taken.get(name) ?? zeroQuantity);
    if (left.compare(amount) < 0) faults.push(name === "pods" ? "Too many pods" : `Insufficient ${name}`);
  }
  return faults;
}

function isTolerated(taint: Taint, tolerations: readonly Toleration[]): boolean {
  return tolerations.some(({ key, operator = "Equal", value = "", effect }) => {
    if (effect !== undefined && effect !== "" && effect !== taint.effect) return false;
    if (key === undefined || key === "") return operator === "Exists";
    return key === taint.key && (operator === "Exists" || value === (taint.value ?? ""));
  });
}
