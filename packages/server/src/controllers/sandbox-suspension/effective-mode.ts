import {
  controllerOf,
  findCondition,
  formatTimestampMs,
  hasReadyReason,
  refersTo,
  type Sandbox,
  sandboxWarmPools,
  tryParseTimestamp,
  wakePolicyOf,
} from "@agent-sandbox/api";
import { lastActivityAnnotation, suspendedAtAnnotation } from "../well-known.ts";

/** The mode a Sandbox is in, computed from its spec, the reported activity and the clock. */
export interface EffectiveMode {
  readonly mode: "Running" | "Suspended";
  /** Who decided: the user's `operatingMode`, idleness, traffic, or the lack of a way to suspend as asked. */
  readonly cause: "user" | "inactivity" | "traffic" | "strategy-unavailable";
  /** When the answer changes by itself. */
  readonly changesAtMs?: number;
  /** The moment of suspension must be remembered, so that later activity can be told from earlier. */
  readonly stampSuspendedAt?: boolean;
}

/** Derives the mode; `spec.operatingMode` stays the user's. */
export function effectiveMode(sandbox: Sandbox, nowMs: number): EffectiveMode {
  const asked = askedMode(sandbox, nowMs);
  if (asked.mode === "Running" || strategyOf(sandbox) === "Stop") return asked;
  // Stopping the Pod instead would lose the memory that the user asked to keep.
  return { mode: "Running", cause: "strategy-unavailable" };
}

function askedMode(sandbox: Sandbox, nowMs: number): EffectiveMode {
  const activityMs = timeOf(sandbox, lastActivityAnnotation);
  if (sandbox.spec.operatingMode === "Suspended") return suspendedByUser(sandbox, activityMs, nowMs);
  return idleMode(sandbox, activityMs, nowMs, "user");
}

function suspendedByUser(sandbox: Sandbox, activityMs: number | undefined, nowMs: number): EffectiveMode {
  const wakes = wakePolicyOf(sandbox) === "OnTraffic";
  const suspendedMs = timeOf(sandbox, suspendedAtAnnotation);
  if (suspendedMs === undefined && (wakes || sandbox.spec.autoSuspension !== undefined)) {
    return { mode: "Suspended", cause: "user", stampSuspendedAt: true };
  }
  if (!wakes || suspendedMs === undefined) return { mode: "Suspended", cause: "user" };
  if (activityMs === undefined || activityMs <= suspendedMs) return { mode: "Suspended", cause: "user" };
  return idleMode(sandbox, activityMs, nowMs, "traffic");
}

function idleMode(
  sandbox: Sandbox,
  activityMs: number | undefined,
  nowMs: number,
  awakeBy: "user" | "traffic",
): EffectiveMode {
  const timeoutSeconds = sandbox.spec.autoSuspension?.inactivityTimeoutSeconds;
  if (timeoutSeconds === undefined || isResumed(sandbox) || waitsInPool(sandbox))
    return { mode: "Running", cause: awakeBy };
  const asleepAtMs = sleepTimeMs(sandbox, activityMs ?? 0, timeoutSeconds * 1000, nowMs);
  if (nowMs >= asleepAtMs) return { mode: "Suspended", cause: "inactivity" };
  return { mode: "Running", cause: awakeBy, changesAtMs: asleepAtMs };
}

/** A pool keeps its members ready for claims; their idle time begins when one takes them. */
function waitsInPool(sandbox: Sandbox): boolean {
  return refersTo(controllerOf(sandbox), sandboxWarmPools);
}

/** Annotations with which a claim takes a Sandbox that can fall asleep: being taken counts as activity. */
export function takenStamp({ spec }: Sandbox, nowMs: number): Readonly<Record<string, string>> {
  return spec.autoSuspension === undefined ? {} : { [lastActivityAnnotation]: formatTimestampMs(nowMs) };
}

/** Its user ended a suspension and nothing followed yet: that is a wish to have it, however long ago it was used. */
function isResumed(sandbox: Sandbox): boolean {
  return sandbox.spec.operatingMode !== "Suspended" && timeOf(sandbox, suspendedAtAnnotation) !== undefined;
}

/**
 * When an unused Sandbox falls asleep. Idle time begins with the last activity or when the Sandbox became Ready,
 * whichever is later: a timeout shorter than the start would otherwise suspend it before its first use.
 */
function sleepTimeMs(sandbox: Sandbox, activityMs: number, timeoutMs: number, nowMs: number): number {
  const bornMs = Date.parse(sandbox.metadata.creationTimestamp ?? "");
  const wantedMs = Math.max(activityMs, Number.isNaN(bornMs) ? nowMs : bornMs);
  const ready = findCondition(sandbox.status?.conditions, "Ready");
  if (hasReadyReason(sandbox, "SandboxSuspended")) return wantedMs + timeoutMs;
  const turnedMs = Date.parse(ready?.lastTransitionTime ?? "");
  const sinceMs = Math.max(wantedMs, Number.isNaN(turnedMs) ? 0 : turnedMs);
  if (ready?.status !== "True") return sinceMs + Math.max(timeoutMs, startGraceMs);
  // The stamp has lost its fraction of a second, and nothing may sleep too early.
  return Math.max(wantedMs, turnedMs + 1000) + timeoutMs;
}

/** How long a Sandbox that does not become Ready is left awake: ten minutes are more than the pull of a large image takes. */
const startGraceMs = 600_000;

/** How the Sandbox wants to be suspended. */
export function strategyOf(sandbox: Sandbox): "Stop" | "Freeze" | "Hibernate" {
  return sandbox.spec.suspensionStrategy?.type ?? "Stop";
}

function timeOf(sandbox: Sandbox, annotation: string): number | undefined {
  return tryParseTimestamp(sandbox.metadata.annotations?.[annotation] ?? "");
}
