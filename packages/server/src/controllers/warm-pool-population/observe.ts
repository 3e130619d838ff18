import type { Pod, SandboxWarmPool } from "@agent-sandbox/api";
import { isConditionTrue, isControlledBy, nameHash, sandboxWarmPools } from "@agent-sandbox/api";
import { byPoolLabel, scoped } from "../caches.ts";
import type { ExtensionContext } from "../extension-context.ts";
import { trackedPodName } from "../sandbox-pod/plan.ts";
import type { TemplateLookup } from "../template-lookup.ts";
import { desiredReplicas, type PoolObserved } from "./plan.ts";
import type { PoolMemory } from "./pool-memory.ts";

/** Collects what a pass needs from the caches. */
export function observePool(
  { caches, config, clock }: ExtensionContext,
  pool: SandboxWarmPool,
  lookup: TemplateLookup,
  memory: PoolMemory,
): PoolObserved {
  const members = caches.sandboxes.byIndex(byPoolLabel, scoped(pool, nameHash(pool.metadata.name)));
  const nowMs = clock.nowMs();
  const active = members.filter(
    (member) => member.metadata.deletionTimestamp === undefined && isControlledBy(member, sandboxWarmPools, pool),
  );
  const waiting = active.filter((member) => !isConditionTrue(member.status?.conditions, "Ready"));
  const unschedulable = waiting.filter((member) =>
    isUnschedulable(caches.pods.get(scoped(member, trackedPodName(member)))),
  );
  return {
    pool,
    template: lookup.kind === "found" ? lookup.template : undefined,
    templateState: lookup.kind === "found" ? { kind: "resolved" } : { kind: lookup.kind, message: lookup.message },
    members,
    unschedulable: new Set(unschedulable.map((member) => member.metadata.name)),
    unresolved: memory.unresolved.size,
    holdMs: memory.hold.remainingMs(active.length, desiredReplicas(pool), nowMs),
    readinessGraceMs: config.readinessGraceMs,
    unschedulableRecheckMs: config.unschedulableRecheckMs,
    batchMax: config.poolBatchMax,
    nowMs,
  };
}

function isUnschedulable(pod: Pod | undefined): boolean {
  if (pod === undefined || pod.metadata.deletionTimestamp !== undefined) return false;
  return (pod.status?.conditions ?? []).some(
    (entry) => entry.type === "PodScheduled" && entry.status === "False" && entry.reason === "Unschedulable",
  );
}
