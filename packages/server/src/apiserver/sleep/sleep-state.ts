import { annotations, type Sandbox, sandboxPhase, tryParseTimestamp, wakePolicyOf } from "@agent-sandbox/api";

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

/** Reads the state; pure. */
export function sleepStateOf(sandbox: Sandbox): SleepState {
  const { phase, wakesOnTraffic } = sandboxPhase(sandbox);
  switch (phase) {
    case "ready":
    // What is being deleted is for the node to say.
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
      // A sandbox that nobody could have put to sleep starts at its own pace, and the node says how far it is.
      return wakePolicyOf(sandbox) === "OnTraffic" ? "starting" : "awake";
    case "restore-failed":
    case "finished":
    case "failed":
    case "expired":
      return "ended";
    default:
      return phase satisfies never;
  }
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

function reportedActivityMs({ metadata }: Sandbox): number {
  return tryParseTimestamp(metadata.annotations?.[annotations.lastActivityAt] ?? "") ?? 0;
}
