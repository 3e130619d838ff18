import type { Condition, ReadyReason, Sandbox, SandboxStatus, SuspendedReason } from "@agent-sandbox/api";
import {
  controllerOf,
  findCondition,
  hasReadyReason,
  isConditionTrue,
  refersTo,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import type { EventNote } from "../event-recorder.ts";
import { isLimitCondition } from "../sandbox-status/limit-conditions.ts";

/** The Events of a change of status. Members of a pool have none, except for several Pods: each Event is a request, and a pool makes members all the time. */
export function planSandboxEvents(sandbox: Sandbox, after: SandboxStatus): EventNote[] {
  const before = sandbox.status;
  const ready = readyNote(findCondition(before?.conditions, "Ready"), findCondition(after.conditions, "Ready"));
  if (ready?.reason === "MultiplePods") return [ready];
  if (refersTo(controllerOf(sandbox), sandboxWarmPools)) return [];
  const notes = ready === undefined ? [] : [ready];
  const suspended = findCondition(after.conditions, "Suspended");
  if (suspended?.status === "True" && !isConditionTrue(before?.conditions, "Suspended")) {
    notes.push({ type: "Normal", reason: "SandboxSuspended", action: "Suspending", note: suspended.message });
  }
  if (suspended?.reason === "SuspensionFailed" && !hasReason(before, "Suspended", "SuspensionFailed")) {
    notes.push({ type: "Warning", reason: "SuspensionFailed", action: "Suspending", note: suspended.message });
  }
  return [...notes, ...limitNotes(before, after)];
}

function hasReason(status: SandboxStatus | undefined, type: string, reason: SuspendedReason): boolean {
  return findCondition(status?.conditions, type)?.reason === reason;
}

/** A limit that was reached, or reached again. */
function limitNotes(before: SandboxStatus | undefined, after: SandboxStatus): EventNote[] {
  return (after.conditions ?? [])
    .filter((entry) => isLimitCondition(entry) && entry.status === "True")
    .filter((entry) => findCondition(before?.conditions, entry.type)?.lastTransitionTime !== entry.lastTransitionTime)
    .map(({ type, message }) => ({ type: "Warning", reason: type, action: "Reconciling", note: message }));
}

/** What became of the attempt to make a Pod. */
export interface PodAttempt {
  /** Name of the Pod that was made. */
  readonly created?: string;
  /** Why none could be made. */
  readonly failure?: string;
}

/** The Events of a Pod's creation; a failure that is retried gives one Event. */
export function planPodEvents(sandbox: Sandbox, { created, failure }: PodAttempt): EventNote[] {
  if (refersTo(controllerOf(sandbox), sandboxWarmPools)) return [];
  if (created !== undefined) {
    const note = `Created Pod "${created}"`;
    return [{ type: "Normal", reason: "SandboxPodCreated", action: "Creating", note }];
  }
  if (failure === undefined || hasReadyReason(sandbox, "ReconcilerError")) return [];
  return [{ type: "Warning", reason: "SandboxPodCreateFailed", action: "Creating", note: failure }];
}

function readyNote(before: Condition | undefined, after: Condition | undefined): EventNote | undefined {
  if (after === undefined || (before?.status === after.status && before.reason === after.reason)) return undefined;
  switch (after.reason as ReadyReason) {
    case "MultiplePods":
      return { type: "Warning", reason: "MultiplePods", action: "Reconciling", note: after.message };
    case "InvalidConfiguration":
      return { type: "Warning", reason: "InvalidConfiguration", action: "Reconciling", note: after.message };
    case "DependenciesReady":
      return { type: "Normal", reason: "SandboxReady", action: "Reconciling", note: "Sandbox is ready" };
    case "SandboxExpired":
      return { type: "Normal", reason: "SandboxExpired", action: "Expiring", note: after.message };
    case "PodSucceeded":
      return { type: "Normal", reason: "PodSucceeded", action: "Reconciling", note: after.message };
    case "RestoreFailed":
      return { type: "Warning", reason: "RestoreFailed", action: "Reconciling", note: after.message };
    case "PodFailed":
      return { type: "Warning", reason: "PodFailed", action: "Reconciling", note: after.message };
    default:
      return undefined;
  }
}
