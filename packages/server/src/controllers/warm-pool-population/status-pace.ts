import type { SandboxWarmPoolStatus } from "@agent-sandbox/api";
import { semanticEqual } from "@agent-sandbox/api";

/** How old the counts in a pool's status may get while they go on changing. Exported for tests. */
export const countsEveryMs = 1_000;

/**
 * How long the write of a status may wait: 0 means now. Each claim changes a pool's counts three times; written each time
 * they were 1,663 of the controllers' 7,360 requests at 10 claims a second for a minute (`bench/results/claims.md`). So
 * counts that change are written once a second, and any other change at once.
 */
export function statusDelayMs(
  before: SandboxWarmPoolStatus | undefined,
  after: SandboxWarmPoolStatus,
  sinceWrittenMs: number,
): number {
  // After the clock was set back the time since the last write is negative.
  if (before === undefined || sinceWrittenMs < 0 || sinceWrittenMs >= countsEveryMs) return 0;
  return semanticEqual(withoutCounts(before), withoutCounts(after)) ? countsEveryMs - sinceWrittenMs : 0;
}

/** The `Ready` condition goes with them: its message has the number of Ready members. */
function withoutCounts(status: SandboxWarmPoolStatus): object {
  const { replicas: _all, readyReplicas: _ready, updatedReplicas: _updated, conditions = [], ...rest } = status;
  return { ...rest, conditions: conditions.filter(({ type }) => type !== "Ready") };
}
