import type { SandboxWarmPoolStatus } from "@agent-sandbox/api";
import { semanticEqual } from "@agent-sandbox/api";

/** How far the counts of a pool may be behind while they go on changing. */
export const countsEveryMs = 1_000;

/**
 * How long a status may wait to be told: 0 means now. Each claim moves a pool's counts three times, and an API server
 * that is asked for a write each time has as much to do with them as with the claim; so counts that were told just now
 * are told again a second later, whatever they are by then. All else a status says is told at once.
 */
export function tellAfterMs(
  before: SandboxWarmPoolStatus | undefined,
  after: SandboxWarmPoolStatus,
  sinceToldMs: number,
): number {
  // A clock that was set back must not silence a pool.
  if (before === undefined || sinceToldMs < 0 || sinceToldMs >= countsEveryMs) return 0;
  return semanticEqual(withoutCounts(before), withoutCounts(after)) ? countsEveryMs - sinceToldMs : 0;
}

/** `Ready` counts too: it says how many members are. */
function withoutCounts(status: SandboxWarmPoolStatus): object {
  const { replicas: _all, readyReplicas: _ready, updatedReplicas: _updated, conditions = [], ...rest } = status;
  return { ...rest, conditions: conditions.filter(({ type }) => type !== "Ready") };
}
