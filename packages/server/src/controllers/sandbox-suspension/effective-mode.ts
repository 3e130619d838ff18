import {
  annotationKeys,
  controllerOf,
  findCondition,
  formatTimestampMs,
  hasReadyReason,
  type Pod,
  refersTo,
  runtimeVersionCondition,
  type Sandbox,
  sandboxWarmPools,
  tryParseTimestamp,
  wakePolicyOf,
} from "@agent-sandbox/api";

/** How deep a Sandbox sleeps. */
export type Rung = "Stop" | "Freeze" | "Hibernate";

/** The mode a Sandbox is in, computed from its spec, the reported activity, its Pod and the clock. */
export interface EffectiveMode {
  readonly mode: "Running" | "Suspended";
  /** How deep it is to sleep; there exactly where the mode is Suspended. */
  readonly rung?: Rung;
  /** Who decided: the user's `operatingMode`, idleness, traffic, or the lack of a way to suspend as asked. */
  readonly cause: "user" | "inactivity" | "traffic" | "strategy-unavailable";
  /** When the answer changes by itself. */
  readonly changesAtMs?: number;
  /** The moment of suspension must be remembered, so that later activity can be told from earlier. */
  readonly stampSuspendedAt?: boolean;
}

/** Derives the mode; `spec.operatingMode` stays the user's. The Pod is the Sandbox's own; without one nothing is known of a node, and nothing is refused. */
export function effectiveMode(sandbox: Sandbox, nowMs: number, pod?: Pod): EffectiveMode {
  const asked = askedMode(sandbox, nowMs);
  if (asked.mode === "Running") return asked;
  const strategy = strategyOf(sandbox);
  // A Pod that has ended has no memory that could be kept.
  if (strategy === "Stop" || (pod !== undefined && hasEnded(pod))) return { ...asked, rung: "Stop" };
  // Stopping the Pod instead would lose the memory that the user asked to keep.
  if (pod !== undefined && !canSleepDeeply(pod)) return { mode: "Running", cause: "strategy-unavailable" };
  if (strategy === "Hibernate") return { ...asked, rung: "Hibernate" };
  const hibernatesAtMs = hibernationTimeMs(sandbox, asked);
  if (hibernatesAtMs !== undefined && nowMs >= hibernatesAtMs) return { ...asked, rung: "Hibernate" };
  return { ...asked, rung: "Freeze", ...(hibernatesAtMs !== undefined && { changesAtMs: hibernatesAtMs }) };
}

/** Whether the node of a Pod answers wishes for sleep; true also as long as the Pod does not run and its node has said nothing. */
export function canSleepDeeply(pod: Pod): boolean {
  if (pod.status?.phase !== "Running") return true;
  return findCondition(pod.status.conditions, runtimeVersionCondition) !== undefined;
}

/** Whether all containers of a Pod are over for good. */
export function hasEnded({ status }: Pod): boolean {
  return status?.phase === "Succeeded" || status?.phase === "Failed";
}

/**
 * When a Sandbox that freezes goes one rung deeper; undefined where it does not, or has not been asked to freeze yet. Where idleness put it to sleep, it
 * had been idle for the first of both times when the wish was made. Once it hibernates it stays at that rung until it wakes.
 */
function hibernationTimeMs({ spec, status }: Sandbox, { cause }: EffectiveMode): number | undefined {
  const { inactivityTimeoutSeconds = 0, hibernateAfterSeconds } = spec.autoSuspension ?? {};
  const wish = status?.sleep;
  if (hibernateAfterSeconds === undefined || wish === undefined) return undefined;
  const idleSeconds = cause === "inactivity" ? inactivityTimeoutSeconds : 0;
  return wish.rung === "Hibernate" ? 0 : Number(wish.id) + (hibernateAfterSeconds - idleSeconds) * 1000;
}

function askedMode(sandbox: Sandbox, nowMs: number): EffectiveMode {
  const activityMs = timeOf(sandbox, annotationKeys.lastActivityAt);
  if (sandbox.spec.operatingMode === "Suspended") return suspendedByUser(sandbox, activityMs, nowMs);
  return idleMode(sandbox, activityMs, nowMs, "user");
}

function suspendedByUser(sandbox: Sandbox, activityMs: number | undefined, nowMs: number): EffectiveMode {
  const wakes = wakePolicyOf(sandbox) === "OnTraffic";
  const suspendedMs = timeOf(sandbox, annotationKeys.suspendedAt);
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
  if (timeoutSeconds === undefined || isResumed(sandbox) || waitsInPool(sandbox) || hasFailedRestore(sandbox))
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
  return spec.autoSuspension === undefined ? {} : { [annotationKeys.lastActivityAt]: formatTimestampMs(nowMs) };
}

/** Its user ended a suspension and nothing followed yet: that is a wish to have it, however long ago it was used. */
function isResumed(sandbox: Sandbox): boolean {
  return sandbox.spec.operatingMode !== "Suspended" && timeOf(sandbox, annotationKeys.suspendedAt) !== undefined;
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

/**
 * Whether its saved memory could not be used, and its spec is still the same. It then waits for its user: falling asleep and waking would try again and
 * again what cannot work.
 */
export function hasFailedRestore({ metadata, status }: Sandbox): boolean {
  const ready = findCondition(status?.conditions, "Ready");
  return ready?.reason === "RestoreFailed" && ready.observedGeneration === metadata.generation;
}

/** How long a Sandbox that does not become Ready is left awake: ten minutes are more than the pull of a large image takes. */
const startGraceMs = 600_000;

/** How the Sandbox wants to be suspended. */
export function strategyOf(sandbox: Sandbox): Rung {
  return sandbox.spec.suspensionStrategy?.type ?? "Stop";
}

function timeOf(sandbox: Sandbox, annotation: string): number | undefined {
  return tryParseTimestamp(sandbox.metadata.annotations?.[annotation] ?? "");
}
