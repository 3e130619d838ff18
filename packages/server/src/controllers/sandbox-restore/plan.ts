import type { Pod, RestoredFrom, Sandbox, SandboxSnapshot } from "@agent-sandbox/api";
import {
  annotationKeys,
  findCondition,
  formatTimestamp,
  hasReadyReason,
  isMemoryGivenUp,
  pendingSnapshotOf,
  podSnapshotAnnotations,
  restoreOf,
  snapshotState,
} from "@agent-sandbox/api";
import { type EffectiveMode, hasFailedRestore } from "../sandbox-suspension/effective-mode.ts";
import { mayRun, type SleepStage } from "../sandbox-suspension/plan-sleep.ts";

/** What the decision depends on. */
export interface RestoreObserved {
  readonly sandbox: Sandbox;
  readonly mode: EffectiveMode;
  /** The Sandbox's own Pod. */
  readonly pod: Pod | undefined;
  /** The snapshot of the name that the spec has, as far as it is needed. */
  readonly snapshot: SandboxSnapshot | undefined;
  readonly nowMs: number;
}

/** What a pass decides about the start from a snapshot. */
export type RestorePlan =
  /** It starts from its own files: it names no snapshot, or has been started from it. */
  | { readonly step: "none" }
  /** The snapshot is not ready; no Pod is made. */
  | { readonly step: "wait"; readonly message: string }
  /** The snapshot is ready, and the status has to name it before a Pod may be made. */
  | { readonly step: "name"; readonly restoredFrom: RestoredFrom }
  /** It is not to go back to that snapshot any more, and nothing has run from it: it keeps the files that it has. */
  | { readonly step: "withdraw" }
  /** The Pod is on its way, or may be made. */
  | { readonly step: "start"; readonly stage: SleepStage }
  /** The Pod runs from it. */
  | { readonly step: "started"; readonly restoredFrom: RestoredFrom }
  /** It cannot be started from it; the Pod that tried goes once the status says so. */
  | { readonly step: "failed"; readonly stage: SleepStage };

const none = { step: "none" } as const;

/**
 * Decides about the first start of a Sandbox that names a snapshot, and about one that goes back to a snapshot of its own. What the name means is written
 * down once, by uid: a snapshot of the same name that is made later is another one.
 */
export function planRestore(observed: RestoreObserved): RestorePlan {
  const { sandbox, pod } = observed;
  if (!awaitsSnapshot(sandbox)) return pod === undefined ? planRestart(observed) : none;
  const pending = pendingSnapshotOf(sandbox);
  if (pending === undefined) return pod === undefined ? planNaming(observed) : none;
  if (pod === undefined && isWithdrawn(sandbox)) return { step: "withdraw" };
  return pod === undefined ? planStart(observed, pending) : planStarting({ ...observed, pod }, pending);
}

/** Whether a Sandbox is to start from a snapshot and has not done so yet. One whose own memory was saved has run. */
function awaitsSnapshot({ spec, status }: Sandbox): boolean {
  if (status?.sleep?.savedAt !== undefined) return false;
  if (status?.restart !== undefined) return true;
  return spec.restoreFrom !== undefined && status?.restoredFrom?.startedAt === undefined;
}

/** The name of the snapshot that a pass over a Sandbox needs; undefined where it needs none. */
export function snapshotNameFor(sandbox: Sandbox): string | undefined {
  const { restart } = sandbox.status ?? {};
  if (awaitsSnapshot(sandbox)) return restart?.name ?? sandbox.spec.restoreFrom?.snapshotName;
  return mayGoBack(sandbox) ? returnOf(sandbox)?.name : undefined;
}

/** The snapshot of its own that a Sandbox is to go back to when it wakes. Asked for by name, it wakes with nothing else. */
function returnOf({ metadata, spec }: Sandbox): { readonly name: string; readonly isAsked: boolean } | undefined {
  const asked = spec.podTemplate.metadata?.annotations?.[podSnapshotAnnotations.name] ?? "";
  const name = asked === "" ? (metadata.annotations?.[annotationKeys.restartFrom] ?? "") : asked;
  return name === "" ? undefined : { name, isAsked: asked !== "" };
}

/** Whether a Sandbox wakes: it has slept without saved memory, or could not go back. A Pod that is made anew for another reason has the files of the one before. */
function mayGoBack(sandbox: Sandbox): boolean {
  const { podUID, sleep } = sandbox.status ?? {};
  if (podUID === undefined || sleep?.savedAt !== undefined) return false;
  return hasReadyReason(sandbox, "SandboxSuspended") || hasFailedRestore(sandbox);
}

/** A Sandbox is not to go back to what it was to any more; until it runs from there, it has the files from before. */
function isWithdrawn(sandbox: Sandbox): boolean {
  const { restart } = sandbox.status ?? {};
  return restart !== undefined && returnOf(sandbox)?.name !== restart.name;
}

function planRestart({ sandbox, mode, snapshot }: RestoreObserved): RestorePlan {
  const wish = returnOf(sandbox);
  if (wish === undefined || mode.mode !== "Running" || !mayGoBack(sandbox)) return none;
  const { name, isAsked } = wish;
  const otherwise = (why: string): RestorePlan => (isAsked ? failed(why) : none);
  if (!isThere(snapshot)) return otherwise(`there is no SandboxSnapshot "${name}" in this namespace`);
  if (snapshot.status?.sandboxUID !== sandbox.metadata.uid)
    return otherwise(`SandboxSnapshot "${name}" is of another Sandbox; a Sandbox goes back to its own alone`);
  const { state, message } = snapshotState(snapshot);
  if (state !== "ready") return otherwise(`SandboxSnapshot "${name}" is not ready: ${message}`);
  const generation = (sandbox.status?.restoredFrom?.generation ?? 0) + 1;
  return { step: "name", restoredFrom: { name, uid: snapshot.metadata.uid ?? "", generation } };
}

/** Whether a snapshot can be named; one that is being deleted is as good as gone. */
export function isThere(snapshot: SandboxSnapshot | undefined): snapshot is SandboxSnapshot {
  return snapshot !== undefined && snapshot.metadata.deletionTimestamp === undefined;
}

function planNaming({ sandbox, snapshot }: RestoreObserved): RestorePlan {
  const name = sandbox.spec.restoreFrom?.snapshotName ?? "";
  if (!isThere(snapshot)) return failed(`there is no SandboxSnapshot "${name}" in this namespace`);
  const { state, message } = snapshotState(snapshot);
  switch (state) {
    case "pending":
    case "saving":
      return {
        step: "wait",
        message: `Waiting for SandboxSnapshot "${name}"${message === "" ? "" : `, which says: ${message}`}`,
      };
    case "failed":
      return failed(`SandboxSnapshot "${name}" failed: ${message}`);
    case "ready":
      return { step: "name", restoredFrom: { name, uid: snapshot.metadata.uid ?? "" } };
    default:
      return state satisfies never;
  }
}

/** The status names the snapshot, and no Pod is there. */
function planStart({ sandbox, mode, snapshot }: RestoreObserved, { name, uid }: RestoredFrom): RestorePlan {
  if (!isThere(snapshot) || snapshot.metadata.uid !== uid) {
    return failed(`SandboxSnapshot "${name}" with uid "${uid}" was deleted before this Sandbox had started from it`);
  }
  const isCold = isMemoryGivenUp(sandbox);
  if (mode.mode === "Running" && !isCold && hasFailedRestore(sandbox)) return failed(failureOf(sandbox));
  return { step: "start", stage: { name: "restoring", isCold } };
}

function planStarting({ sandbox, mode, pod, nowMs }: RestoreObserved & { readonly pod: Pod }, from: RestoredFrom) {
  const isAsleep = mode.mode === "Suspended";
  const restore = restoreOf(pod);
  if (restore?.state === "failed") return failed(restore.message, hasFailedRestore(sandbox) || isAsleep);
  const { phase } = pod.status ?? {};
  const runs = restore === undefined && (phase === "Running" || phase === "Succeeded");
  if (restore?.state === "restored" || runs) {
    return { step: "started", restoredFrom: { ...from, startedAt: formatTimestamp(nowMs) } } as const;
  }
  // What has run already must not be thrown away: it is put to sleep once all of it is there.
  if (isAsleep && !mayRun(pod)) return { step: "start", stage: { name: "unstarted" } } as const;
  return { step: "start", stage: { name: "restoring", isCold: isMemoryGivenUp(sandbox) } } as const;
}

function failed(why: string, isTold = true): RestorePlan {
  return { step: "failed", stage: { name: "restore-failed", why, isTold } };
}

function failureOf({ status }: Sandbox): string {
  return findCondition(status?.conditions, "Ready")?.message ?? "";
}
