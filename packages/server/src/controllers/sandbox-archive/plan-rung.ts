import type { Sandbox } from "@agent-sandbox/api";
import { controllerOf, findCondition } from "@agent-sandbox/api";
import { effectiveMode, strategyOf } from "../sandbox-suspension/effective-mode.ts";
import { isAsleep } from "./plan-away.ts";

/** When a Sandbox without an archive gets one by `archiveAfterSeconds`; undefined where that is not in sight. */
export function archiveTimeMs(sandbox: Sandbox, podCount: number, nowMs: number): number | undefined {
  const {
    inactivityTimeoutSeconds = 0,
    hibernateAfterSeconds,
    archiveAfterSeconds,
  } = sandbox.spec.autoSuspension ?? {};
  if (archiveAfterSeconds === undefined || sandbox.metadata.deletionTimestamp !== undefined) return undefined;
  // Who controls it would make another in its place.
  if (controllerOf(sandbox) !== undefined || sandbox.status?.podUID === undefined) return undefined;
  if (!isAsleep(sandbox, podCount, nowMs)) return undefined;
  const suspended = findCondition(sandbox.status.conditions, "Suspended");
  const asleepMs = Date.parse(suspended?.status === "True" ? suspended.lastTransitionTime : "");
  if (Number.isNaN(asleepMs)) return undefined;
  // What idleness put to sleep had been idle for the time of its rung by then; what its user did counts from then.
  const isLadder = strategyOf(sandbox) === "Freeze" && hibernateAfterSeconds !== undefined;
  const isIdle = effectiveMode(sandbox, nowMs).cause === "inactivity";
  const rungSeconds = isLadder ? hibernateAfterSeconds : isIdle ? inactivityTimeoutSeconds : 0;
  return asleepMs + Math.max(0, archiveAfterSeconds - rungSeconds) * 1000;
}
