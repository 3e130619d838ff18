import { annotations, type Sandbox, tryParseTimestamp } from "@agent-sandbox/api";

/** What somebody who wants to enter a Sandbox meets. */
export type SleepState =
  /** It runs, or it is for the node to say why not. */
  | "awake"
  /** Asleep or falling asleep; whoever wants in wakes it. */
  | "asleep"
  /** On its way back, or on its way for the first time. */
  | "starting"
  /** Suspended by its owner, who does not want anybody to wake it. */
  | "held"
  /** Nothing will come: expired, failed or done. */
  | "ended";

/** A quarter of the timeout between two reports, as router and node keep it. */
const reportsPerTimeout = 4;

const endReasons: ReadonlySet<string> = new Set([
  "SandboxExpired",
  "PodFailed",
  "PodSucceeded",
  "InvalidConfiguration",
]);

/** Reads the state; pure. */
export function sleepStateOf(sandbox: Sandbox): SleepState {
  const ready = sandbox.status?.conditions?.find(({ type }) => type === "Ready");
  const isSuspended = ready?.reason === "SandboxSuspended" || sandbox.spec.operatingMode === "Suspended";
  if (ready?.status === "True") return isSuspended && isFallingAsleep(sandbox) ? "asleep" : "awake";
  if (isSuspended) return wakesOnTraffic(sandbox) ? "asleep" : "held";
  if (endReasons.has(ready?.reason ?? "")) return "ended";
  // A sandbox that nobody could have put to sleep starts at its own pace, and the node says how far it is.
  return wakesOnTraffic(sandbox) ? "starting" : "awake";
}

/** Whether activity must be reported before the Sandbox is entered, lest it falls asleep behind the caller's back. */
export function isReportDue(sandbox: Sandbox, nowMs: number): boolean {
  const intervalMs = reportIntervalMs(sandbox);
  return intervalMs !== undefined && nowMs - reportedActivityMs(sandbox) >= intervalMs;
}

/** How often the use of a Sandbox is reported while it lasts; undefined where it never falls asleep by itself. */
export function reportIntervalMs({ spec }: Sandbox): number | undefined {
  const timeoutSeconds = spec.autoSuspension?.inactivityTimeoutSeconds;
  return timeoutSeconds === undefined ? undefined : (timeoutSeconds * 1000) / reportsPerTimeout;
}

/** A user's suspension whose Pod is still there: activity since then has not called it off. */
function isFallingAsleep(sandbox: Sandbox): boolean {
  if (!wakesOnTraffic(sandbox)) return false;
  // A Ready that is older than the suspension speaks of the Pod that it takes away.
  const { observedGeneration } = sandbox.status?.conditions?.find(({ type }) => type === "Ready") ?? {};
  if (observedGeneration !== undefined && observedGeneration < (sandbox.metadata.generation ?? 0)) return true;
  const suspendedAt = sandbox.metadata.annotations?.[annotations.suspendedAt];
  return suspendedAt === undefined || reportedActivityMs(sandbox) <= (tryParseTimestamp(suspendedAt) ?? 0);
}

/** Unset, a sandbox wakes on traffic only where it also falls asleep by itself. */
function wakesOnTraffic({ spec }: Sandbox): boolean {
  return spec.wakePolicy === undefined ? spec.autoSuspension !== undefined : spec.wakePolicy === "OnTraffic";
}

function reportedActivityMs({ metadata }: Sandbox): number {
  return tryParseTimestamp(metadata.annotations?.[annotations.lastActivityAt] ?? "") ?? 0;
}
