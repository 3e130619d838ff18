import { annotationKeys, type Sandbox, tryParseTimestamp } from "@agent-sandbox/api";

/** Two looks at one sandbox are at least this far apart, however short its timeout. */
const checkEveryMs = 250;

/** Activity this much younger than what the API knows is not worth a write. */
const worthMs = 1_000;

/** When a sandbox that falls asleep by itself is looked at, and until when it stays awake. */
export interface CheckTime {
  readonly checkAtMs: number;
  readonly asleepAtMs: number;
}

/**
 * Half the timeout after the last report, and then halfway to the end again and again: a use that begins late is seen, and
 * an idle sandbox costs a handful of looks. Undefined for a sandbox that never falls asleep by itself.
 */
export function checkTimeOf(sandbox: Sandbox, lastCheckMs: number | undefined): CheckTime | undefined {
  const timeoutSeconds = sandbox.spec.autoSuspension?.inactivityTimeoutSeconds;
  if (timeoutSeconds === undefined) return undefined;
  const timeoutMs = timeoutSeconds * 1000;
  const activeMs = lastActivityMs(sandbox);
  const asleepAtMs = activeMs + timeoutMs;
  const firstMs = activeMs + timeoutMs / 2;
  if (lastCheckMs === undefined || lastCheckMs < firstMs) return { checkAtMs: firstMs, asleepAtMs };
  return { checkAtMs: lastCheckMs + Math.max(checkEveryMs, (asleepAtMs - lastCheckMs) / 2), asleepAtMs };
}

/** The activity that the API knows of; the creation counts as the first. */
function lastActivityMs({ metadata }: Sandbox): number {
  const reported = tryParseTimestamp(metadata.annotations?.[annotationKeys.lastActivityAt] ?? "") ?? 0;
  return Math.max(reported, tryParseTimestamp(metadata.creationTimestamp ?? "") ?? 0);
}

/** What was seen of a sandbox's use. */
export interface SeenUse {
  /** Something is under way at this moment. */
  readonly isInUse: boolean;
  /** When something was last under way; code in the sandbox may claim any time. */
  readonly lastUseMs: number;
}

/** The moment to report, or undefined where the API knows enough. */
export function activityToReport(sandbox: Sandbox, seen: SeenUse, nowMs: number): number | undefined {
  const atMs = seen.isInUse ? nowMs : Math.min(seen.lastUseMs, nowMs);
  const timeoutMs = (sandbox.spec.autoSuspension?.inactivityTimeoutSeconds ?? 0) * 1000;
  return atMs - lastActivityMs(sandbox) > Math.min(worthMs, timeoutMs / 4) ? atMs : undefined;
}
