import type { Sandbox, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus } from "@agent-sandbox/api";
import {
  controllerOf,
  formatGoDuration,
  isControlledBy,
  labelKeys,
  nameHash,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { byAge, isReady, type MemberDeletion, notReadySinceMs } from "./member-state.ts";
import { poolConditions, type TemplateState } from "./pool-conditions.ts";
import { planRollout, type Rollout } from "./rollout.ts";
import { Staleness } from "./staleness.ts";

/** Everything a pass over a pool looks at. */
export interface PoolObserved {
  readonly pool: SandboxWarmPool;
  readonly template: SandboxTemplate | undefined;
  readonly templateState: TemplateState;
  /** Sandboxes of the namespace that carry the pool's label. */
  readonly members: readonly Sandbox[];
  /** Names of members whose Pod the scheduler cannot place. */
  readonly unschedulable: ReadonlySet<string>;
  /** Creates that were sent and neither answered nor seen: they may still turn up. */
  readonly unresolved: number;
  /** How long creation must still be put off after claims took members. */
  readonly holdMs: number;
  readonly readinessGraceMs: number;
  readonly unschedulableRecheckMs: number;
  readonly batchMax: number;
  readonly nowMs: number;
}

/** What a pass decides. */
export interface PoolPlan {
  readonly deletions: readonly MemberDeletion[];
  /** Orphans to adopt and members to mark as warm. */
  readonly repairs: readonly { readonly sandbox: Sandbox; readonly adopt: boolean }[];
  /** Members to create, before tokens are asked for. */
  readonly creations: number;
  readonly held: number;
  readonly stale: number;
  readonly status: SandboxWarmPoolStatus;
  /** The earliest self-scheduled wake-up; `graceMs` is jittered by the caller. */
  readonly wakeMs?: number;
  readonly graceMs?: number;
  /** Note of the not-progressing Event while members are held. */
  readonly heldNote?: string;
}

/** After the grace period of a member ends it is looked at again, with this much room for the clock of the server. */
const graceSlackMs = 2_000;

interface Sorted {
  readonly active: Sandbox[];
  readonly repairs: { sandbox: Sandbox; adopt: boolean }[];
  readonly stale: Sandbox[];
  terminating: number;
}

/** Decides who goes, who stays and how many are missing. Invariant: never creates while active + terminating covers the target. */
export function planPool(observed: PoolObserved): PoolPlan {
  const { pool, template, nowMs } = observed;
  const desired = desiredReplicas(pool);
  const sorted = sortMembers(observed);
  const stuck = planStuck(observed, sorted.active);
  const gone = new Set(stuck.deletions.map(({ sandbox }) => sandbox.metadata.name));
  const recreate = pool.spec.updateStrategy?.type === "Recreate";
  const staleDeletions = recreate ? sorted.stale.map((sandbox) => ({ sandbox, why: "stale" as const })) : [];
  for (const { sandbox } of staleDeletions) gone.add(sandbox.metadata.name);
  const active = sorted.active.filter((sandbox) => !gone.has(sandbox.metadata.name));
  const rollout = planRollout({ pool, active, stale: sorted.stale, desired });
  for (const { sandbox } of rollout.deletions) gone.add(sandbox.metadata.name);
  const left = active.filter((sandbox) => !gone.has(sandbox.metadata.name));
  const population = left.length + sorted.terminating + gone.size + observed.unresolved;
  const excess = planExcess(left, rollout, observed);
  const creations =
    template === undefined || observed.holdMs > 0
      ? 0
      : Math.max(0, Math.min(rollout.target - population, observed.batchMax));
  const held = stuck.held;
  const wakes = [
    observed.holdMs > 0 && left.length < desired && template !== undefined ? observed.holdMs : undefined,
    held > 0 ? observed.unschedulableRecheckMs : undefined,
  ].filter((wake) => wake !== undefined);
  const status = poolStatus(observed, sorted);
  return {
    deletions: [...staleDeletions, ...stuck.deletions, ...rollout.deletions, ...excess],
    repairs: sorted.repairs.filter(({ sandbox }) => !gone.has(sandbox.metadata.name)),
    creations,
    held,
    stale: sorted.stale.length,
    status: {
      ...status,
      conditions: poolConditions({ pool, status, held, desired, nowMs, state: observed.templateState }),
    },
    ...(wakes.length > 0 ? { wakeMs: Math.min(...wakes) } : {}),
    ...(stuck.graceMs === undefined ? {} : { graceMs: stuck.graceMs }),
    ...(held > 0 ? { heldNote: heldNote(held, desired, observed.readinessGraceMs) } : {}),
  };
}

/** Absent means one. */
export function desiredReplicas(pool: SandboxWarmPool): number {
  return pool.spec.replicas ?? 1;
}

function sortMembers({ pool, members, template }: PoolObserved): Sorted {
  const sorted: Sorted = { active: [], repairs: [], stale: [], terminating: 0 };
  const staleness = template === undefined ? undefined : new Staleness(template);
  for (const sandbox of members) {
    const ours = isControlledBy(sandbox, sandboxWarmPools, pool);
    if (sandbox.metadata.deletionTimestamp !== undefined) {
      if (ours) sorted.terminating += 1;
      continue;
    }
    const orphan = controllerOf(sandbox) === undefined;
    // Another controller: a pool whose name has the same hash, or a copied label.
    if (!ours && !orphan) continue;
    // An orphan proves nothing by its label: without a template to compare, or unequal to it, it is left alone.
    if (orphan && (staleness === undefined || staleness.isStale(sandbox))) continue;
    if (staleness?.isStale(sandbox) === true) sorted.stale.push(sandbox);
    if (orphan || sandbox.metadata.labels?.[labelKeys.launchType] !== "warm")
      sorted.repairs.push({ sandbox, adopt: orphan });
    sorted.active.push(sandbox);
  }
  // Sorted because a rollout replaces the oldest first; the active ones need no order, and every pass sees all of them.
  sorted.stale.sort(byAge);
  return sorted;
}

function planStuck(
  { pool, unschedulable, readinessGraceMs, nowMs }: PoolObserved,
  active: readonly Sandbox[],
): { deletions: MemberDeletion[]; held: number; graceMs: number | undefined } {
  const deletions: MemberDeletion[] = [];
  let held = 0;
  let graceMs: number | undefined;
  for (const sandbox of active) {
    const sinceMs = notReadySinceMs(sandbox);
    if (sinceMs === undefined || !isControlledBy(sandbox, sandboxWarmPools, pool)) continue;
    const restMs = sinceMs + readinessGraceMs - nowMs;
    if (restMs >= 0) graceMs = Math.min(graceMs ?? Number.POSITIVE_INFINITY, restMs + graceSlackMs);
    else if (unschedulable.has(sandbox.metadata.name)) held += 1;
    else deletions.push({ sandbox, why: "stuck" });
  }
  return { deletions, held, graceMs };
}

/** Not Ready first, then stale, then newest. */
function planExcess(
  left: readonly Sandbox[],
  rollout: Rollout,
  { batchMax, template }: PoolObserved,
): MemberDeletion[] {
  const surplus = left.length - rollout.target;
  if (surplus <= 0) return [];
  const staleness = template === undefined || !rollout.rolling ? undefined : new Staleness(template);
  const rank = (sandbox: Sandbox): number =>
    (isReady(sandbox) ? 2 : 0) - (staleness?.isStale(sandbox) === true ? 1 : 0);
  return [...left]
    .sort((a, b) => rank(a) - rank(b) || byAge(b, a))
    .slice(0, Math.min(surplus, batchMax))
    .map((sandbox) => ({ sandbox, why: "excess" }));
}

function poolStatus({ pool, template }: PoolObserved, { active, stale }: Sorted): SandboxWarmPoolStatus {
  const ready = active.filter(isReady).length;
  const rolling = pool.spec.updateStrategy?.type === "RollingUpdate" && template !== undefined;
  const updated = active.length - stale.length;
  return {
    ...(active.length > 0 ? { replicas: active.length } : {}),
    ...(ready > 0 ? { readyReplicas: ready } : {}),
    ...(rolling && updated > 0 ? { updatedReplicas: updated } : {}),
    selector: `${labelKeys.warmPoolSandbox}=${nameHash(pool.metadata.name)}`,
    observedGeneration: pool.metadata.generation ?? 0,
  };
}

function heldNote(held: number, desired: number, graceMs: number): string {
  return `${held}/${desired} sandboxes are unschedulable past the ${formatGoDuration(graceMs)} readiness grace period; holding them instead of replacing (replacements would be equally unschedulable)`;
}
