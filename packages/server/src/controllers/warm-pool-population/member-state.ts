import type { Sandbox } from "@agent-sandbox/api";
import { findCondition, isConditionTrue } from "@agent-sandbox/api";

/** One member to remove, in the version that this was decided by: the delete fails if a claim has taken it since. */
export interface MemberDeletion {
  readonly sandbox: Sandbox;
  readonly why: "stale" | "stuck" | "excess";
}

/** Whether the Sandbox says it can be used. */
export function isReady(sandbox: Sandbox): boolean {
  return isConditionTrue(sandbox.status?.conditions, "Ready");
}

/** Since when a member is not Ready: one that served for an hour gets the whole grace period again. */
export function notReadySinceMs(sandbox: Sandbox): number | undefined {
  const bornMs = Date.parse(sandbox.metadata.creationTimestamp ?? "");
  if (isReady(sandbox) || Number.isNaN(bornMs)) return undefined;
  const ready = findCondition(sandbox.status?.conditions, "Ready");
  const turnedMs = Date.parse(ready?.lastTransitionTime ?? "");
  return Number.isNaN(turnedMs) ? bornMs : Math.max(bornMs, turnedMs);
}

/** Oldest first, then by name; by code units, for both texts are ASCII. */
export function byAge({ metadata: a }: Sandbox, { metadata: b }: Sandbox): number {
  const [bornA, bornB] = [a.creationTimestamp ?? "", b.creationTimestamp ?? ""];
  if (bornA !== bornB) return bornA < bornB ? -1 : 1;
  if (a.name === b.name) return 0;
  return a.name < b.name ? -1 : 1;
}
