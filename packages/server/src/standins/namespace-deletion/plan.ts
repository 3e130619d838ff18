import type { Namespace, NamespaceCondition } from "@agent-sandbox/api";
import { formatTimestamp } from "@agent-sandbox/api";

/** What is left of one kind in a namespace. */
export interface Remaining {
  /** Plural with group, for example `sandboxes.agents.x-k8s.io`. */
  readonly resource: string;
  readonly count: number;
  /** Finalizers that hold some of them, with how many each holds. */
  readonly finalizers: Readonly<Record<string, number>>;
}

/** What one pass looks at. */
export interface Observed {
  readonly namespace: Namespace;
  readonly remaining: readonly Remaining[];
  readonly nowMs: number;
}

/** What to do: nothing, empty the namespace, or let it go. */
export type Plan =
  | { readonly kind: "keep" }
  | { readonly kind: "empty"; readonly conditions: NamespaceCondition[] }
  | { readonly kind: "finalize"; readonly finalizers: string[] };

/** The finalizer in `spec.finalizers` that stands for the content of a namespace. */
const contentFinalizer = "kubernetes";

/** Decides how far the deletion of a namespace is. */
export function planNamespaceDeletion({ namespace, remaining, nowMs }: Observed): Plan {
  const finalizers = namespace.spec?.finalizers ?? [];
  if (namespace.metadata.deletionTimestamp === undefined || !finalizers.includes(contentFinalizer))
    return { kind: "keep" };
  const left = remaining.filter(({ count }) => count > 0).sort((a, b) => (a.resource < b.resource ? -1 : 1));
  if (left.length === 0)
    return { kind: "finalize", finalizers: finalizers.filter((each) => each !== contentFinalizer) };
  return { kind: "empty", conditions: conditionsOf(namespace.status?.conditions ?? [], left, nowMs) };
}

function conditionsOf(
  before: readonly NamespaceCondition[],
  left: readonly Remaining[],
  nowMs: number,
): NamespaceCondition[] {
  const contents = left.map(({ resource, count }) => `${resource} has ${count} resource instances`).join(", ");
  const held = new Map<string, number>();
  for (const { finalizers } of left) {
    for (const [name, count] of Object.entries(finalizers)) held.set(name, (held.get(name) ?? 0) + count);
  }
  const holders = [...held]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, count]) => `${name} in ${count} resource instances`)
    .join(", ");
  const wanted = [
    {
      type: "NamespaceContentRemaining",
      status: "True",
      reason: "SomeResourcesRemain",
      message: `Some resources are remaining: ${contents}`,
    },
    held.size > 0
      ? {
          type: "NamespaceFinalizersRemaining",
          status: "True",
          reason: "SomeFinalizersRemain",
          message: `Some content in the namespace has finalizers remaining: ${holders}`,
        }
      : {
          type: "NamespaceFinalizersRemaining",
          status: "False",
          reason: "ContentHasNoFinalizers",
          message: "All content-preserving finalizers finished",
        },
  ];
  return wanted.map((condition) => {
    const old = before.find(({ type }) => type === condition.type);
    const kept = old?.status === condition.status ? old.lastTransitionTime : undefined;
    return { ...condition, lastTransitionTime: kept ?? formatTimestamp(nowMs) };
  });
}
