import { annotationKeys, type Sandbox, sandboxPhase, tryParseTimestamp, wakePolicyOf } from "@agent-sandbox/api";

/** The state of a Sandbox for a caller who wants to enter it. */
export type SleepState =
  /** It runs, or the node answers why not. */
  | "awake"
  /** Asleep or falling asleep; a caller wakes it. */
  | "asleep"
  /** On its way back, or on its way for the first time. */
  | "starting"
  /** Suspended by its owner; traffic does not wake it. */
  | "held"
  /** Nothing will come: expired, failed or done. */
  | "ended";

/** A quarter of the timeout between two reports, as router and node keep it. */
const reportsPerTimeout = 4;

/** Reads the state; pure. */
export function sleepStateOf(sandbox: Sandbox): SleepState {
  const { phase, wakesOnTraffic } = sandboxPhase(sandbox);
  switch (phase) {
    case "ready":
    // The node answers for a Sandbox that is being deleted.
    case "deleting":
      return "awake";
    case "suspending":
    case "suspended":
    case "frozen":
    case "hibernated":
    case "archived":
      return wakesOnTraffic ? "asleep" : "held";
    case "starting":
    case "restoring":
      // One that traffic does not wake was not asleep: the caller is not held, and the node answers how far the start is.
      return wakePolicyOf(sandbox) === "OnTraffic" ? "starting" : "awake";
    case "crash-loop":
    case "restore-failed":
    case "finished":
    case "failed":
    case "expired":
      return "ended";
    default:
      return phase satisfies never;
  }
}

/** Whether activity must be reported before the Sandbox is entered, so that it does not fall asleep between this look and the stream. */
export function isReportDue(sandbox: Sandbox, nowMs: number): boolean {
  const intervalMs = reportIntervalMs(sandbox);
  return intervalMs !== undefined && nowMs - reportedActivityMs(sandbox) >= intervalMs;
}

/** How often the use of a Sandbox is reported while it lasts; undefined where it never falls asleep by itself. */
export function reportIntervalMs({ spec }: Sandbox): number | undefined {
  const timeoutSeconds = spec.autoSuspension?.inactivityTimeoutSeconds;
  return timeoutSeconds === undefined ? undefined : (timeoutSeconds * 1000) / reportsPerTimeout;
}

function reportedActivityMs({ metadata }: Sandbox): number {
  return tryParseTimestamp(metadata.annotations?.[annotationKeys.lastActivityAt] ?? "") ?? 0;
}
