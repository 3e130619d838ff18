import { findCondition } from "./condition.ts";
import { crashLoopCondition } from "./crash-loop.ts";
import type { Sandbox } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";
import type { Condition } from "./meta.ts";
import type { ReadyReason, SuspendedReason } from "./reasons.ts";
import { isMemoryGivenUp } from "./sleep-answer.ts";
import { tryParseTimestamp } from "./timestamp.ts";

/** Where a Sandbox is in its life. Everybody who decides by it closes this union, so that a member more is a decision in each place. */
export type SandboxPhaseName =
  /** On its way, for the first time or back; also where its controller has not spoken yet. */
  | "starting"
  /** It can be used. */
  | "ready"
  /** Put to sleep, and its Pod has not gone yet, or its processes do not stand still yet. */
  | "suspending"
  /** Asleep without a Pod. */
  | "suspended"
  /** Asleep with its processes stopped in memory. */
  | "frozen"
  /** Asleep with its memory on the node's disk. */
  | "hibernated"
  /** Asleep with its state in a store outside the node. */
  | "archived"
  /** On its way back from a saved state. */
  | "restoring"
  /** Its saved state cannot be used. */
  | "restore-failed"
  /** A container of its Pod ends again and again; it waits for the next restart. */
  | "crash-loop"
  /** Its Pod ended well. */
  | "finished"
  /** Its Pod failed and nothing brings it back, or it cannot be made as its spec says. */
  | "failed"
  /** Its time is up. */
  | "expired"
  /** It is being deleted. */
  | "deleting";

/** A phase and what follows from it. */
export interface SandboxPhase {
  readonly phase: SandboxPhaseName;
  /** The reason of the Ready condition, or of the CrashLoop condition in that phase; empty before there is one. */
  readonly reason: string;
  /** What that condition says; empty before there is one. */
  readonly message: string;
  /** Nothing makes it ready but a change of its spec or, in a crash loop, of what its program misses: waiting for that has no known end. */
  readonly isTerminal: boolean;
  /** It sleeps, or is about to, and traffic wakes it. */
  readonly wakesOnTraffic: boolean;
  /** It sleeps, and its owner does not let traffic wake it. */
  readonly isHeld: boolean;
  /** Its controller has seen the spec as it is; what it says is otherwise about an earlier one. */
  readonly isObserved: boolean;
}

/** The phases of one that sleeps or is falling asleep. */
const sleeping: ReadonlySet<SandboxPhaseName> = new Set([
  "suspending",
  "suspended",
  "frozen",
  "hibernated",
  "archived",
]);

/** The phases that no waiting ends. */
const terminal: ReadonlySet<SandboxPhaseName> = new Set([
  "crash-loop",
  "restore-failed",
  "finished",
  "failed",
  "expired",
  "deleting",
]);

/** Reasons of the Ready condition that no waiting mends. A Pod that is replaced after a failure is never reported as failed. */
const endOfReason: ReadonlyMap<string, SandboxPhaseName> = new Map<ReadyReason, SandboxPhaseName>([
  ["SandboxExpired", "expired"],
  ["PodSucceeded", "finished"],
  ["PodFailed", "failed"],
  ["InvalidConfiguration", "failed"],
  ["InvalidMetadata", "failed"],
  ["MultiplePods", "failed"],
  ["RestoreFailed", "restore-failed"],
]);

/** How it sleeps, by the reason of the Suspended condition. */
const sleepOfReason: ReadonlyMap<string, SandboxPhaseName> = new Map<SuspendedReason, SandboxPhaseName>([
  ["PodTerminating", "suspending"],
  ["PodFreezing", "suspending"],
  ["PodHibernating", "suspending"],
  // Its processes run on, and its node tries again.
  ["SuspensionFailed", "suspending"],
  ["PodFrozen", "frozen"],
  ["PodHibernated", "hibernated"],
  ["SandboxArchived", "archived"],
]);

/**
 * The phase of a Sandbox, by its object alone: no clock is asked, so that programs whose clocks differ agree. Router, API server, node, controllers
 * and SDKs all decide by it; `spec/sandbox-phase.golden.json` is the table of its answers.
 */
export function sandboxPhase(sandbox: Sandbox): SandboxPhase {
  const ready = findCondition(sandbox.status?.conditions, "Ready");
  const isObserved = ready !== undefined && !isOutdated(ready, sandbox);
  const phase = phaseName(sandbox, ready, isObserved);
  const isAsleep = sleeping.has(phase);
  const wakes = wakePolicyOf(sandbox) === "OnTraffic";
  const told = phase === "crash-loop" ? crashLoopOfStatus(sandbox) : ready;
  return {
    phase,
    reason: told?.reason ?? "",
    message: told?.message ?? "",
    isTerminal: terminal.has(phase),
    wakesOnTraffic: isAsleep && wakes,
    isHeld: isAsleep && !wakes,
    isObserved,
  };
}

function phaseName(sandbox: Sandbox, ready: Condition | undefined, isObserved: boolean): SandboxPhaseName {
  if (sandbox.metadata.deletionTimestamp !== undefined) return "deleting";
  const wakes = wakePolicyOf(sandbox) === "OnTraffic";
  if (ready?.status === "True") {
    // A request now wakes it again. One that does not wake on traffic serves until its Pod goes.
    return wakes && isBeingSuspended(sandbox) ? "suspending" : "ready";
  }
  const end = isObserved && !isFailureGivenUp(sandbox) ? endOfReason.get(ready?.reason ?? "") : undefined;
  if (end !== undefined) return end;
  const isWantedAsleep = sandbox.spec.operatingMode === "Suspended";
  // A suspension that its user has ended since is over; one that traffic ends is not before the controller says so.
  const isSaidAsleep = hasReason(ready, "SandboxSuspended") && (isObserved || wakes);
  if (isWantedAsleep || isSaidAsleep) return sleepName(sandbox);
  if (hasReason(ready, "SandboxRestoring")) return "restoring";
  return isObserved && crashLoopOfStatus(sandbox) !== undefined ? "crash-loop" : "starting";
}

/** Its user lets it start without the memory that was saved; what its controller says of that memory is over. */
function isFailureGivenUp(sandbox: Sandbox): boolean {
  const ready = findCondition(sandbox.status?.conditions, "Ready");
  return hasReason(ready, "RestoreFailed") && isMemoryGivenUp(sandbox);
}

/** The condition that a container of its Pod ends again and again, where it is so and is about the spec as it is. */
function crashLoopOfStatus(sandbox: Sandbox): Condition | undefined {
  const condition = findCondition(sandbox.status?.conditions, crashLoopCondition);
  return condition?.status === "True" && !isOutdated(condition, sandbox) ? condition : undefined;
}

function hasReason(ready: Condition | undefined, reason: ReadyReason): boolean {
  return ready?.reason === reason;
}

function sleepName(sandbox: Sandbox): SandboxPhaseName {
  const suspended = findCondition(sandbox.status?.conditions, "Suspended");
  return sleepOfReason.get(suspended?.reason ?? "") ?? "suspended";
}

/** A user's suspension that no activity since has called off: what still runs ends with it, and must not wake it. */
export function isBeingSuspended(sandbox: Sandbox): boolean {
  if (sandbox.spec.operatingMode !== "Suspended") return false;
  if (wakePolicyOf(sandbox) === "Never") return true;
  // A Ready that is older than the suspension speaks of the Pod that it takes away.
  const ready = findCondition(sandbox.status?.conditions, "Ready");
  if (ready !== undefined && isOutdated(ready, sandbox)) return true;
  const suspendedMs = timeOf(sandbox, annotationKeys.suspendedAt);
  return suspendedMs === undefined || (timeOf(sandbox, annotationKeys.lastActivityAt) ?? 0) <= suspendedMs;
}

/** Unset: traffic wakes what falls asleep by itself, and nothing wakes what a user put to sleep. */
export function wakePolicyOf({ spec }: Sandbox): "OnTraffic" | "Never" {
  return spec.wakePolicy ?? (spec.autoSuspension === undefined ? "Never" : "OnTraffic");
}

/** Whether a condition is about an earlier spec. */
function isOutdated({ observedGeneration }: Condition, { metadata }: Sandbox): boolean {
  return observedGeneration !== undefined && observedGeneration < (metadata.generation ?? 0);
}

function timeOf({ metadata }: Sandbox, annotation: string): number | undefined {
  return tryParseTimestamp(metadata.annotations?.[annotation] ?? "");
}
