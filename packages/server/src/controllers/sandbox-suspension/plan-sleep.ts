import type { Pod, Sandbox, SleepWish } from "@agent-sandbox/api";
import {
  findCondition,
  formatTimestamp,
  hasSaved,
  isCalledOff,
  isColdStartOf,
  restoreOf,
  sleepAnswerOf,
} from "@agent-sandbox/api";
import { type EffectiveMode, hasEnded, hasFailedRestore } from "./effective-mode.ts";

/** How far a Sandbox has come on its way into sleep or out of it. */
export type SleepStage =
  /** Nothing of a deep sleep is in play: it runs, wakes in place, or is stopped. */
  | { readonly name: "none" }
  /** The wish is new, and has to be announced before the node may see it. */
  | { readonly name: "announce" }
  /** Asked for, and not answered yet. */
  | { readonly name: "asked" }
  /** The node could not do it, and tries again. */
  | { readonly name: "failed"; readonly why: string }
  /** Its processes stand still in memory. */
  | { readonly name: "frozen" }
  /** Its memory is on disk, and the status has to say so before the Pod may go. */
  | { readonly name: "note-saved" }
  /** Its memory is on disk and the status says so: the Pod goes. */
  | { readonly name: "leaving" }
  /** Its memory is on disk and no Pod is left. */
  | { readonly name: "saved" }
  /** Its Pod was made to start from a snapshot, and nothing of it has run: it goes, unless it has started since. */
  | { readonly name: "unstarted" }
  /** It wakes from its saved memory, or is put to sleep again before all of that is read; cold, where its user has given that memory up. */
  | { readonly name: "restoring"; readonly isCold: boolean }
  /** Its saved memory could not be used; the Pod that tried goes once the status says so. */
  | { readonly name: "restore-failed"; readonly why: string; readonly isTold: boolean };

/** What a pass decides about deep sleep. */
export interface SleepPlan {
  /** What `status.sleep` becomes. */
  readonly wish: SleepWish | undefined;
  readonly stage: SleepStage;
}

/** What the decision depends on. */
export interface SleepObserved {
  readonly sandbox: Sandbox;
  readonly mode: EffectiveMode;
  /** The Sandbox's own Pod. */
  readonly pod: Pod | undefined;
  readonly nowMs: number;
}

const none = { wish: undefined, stage: { name: "none" } } as const;

/**
 * Decides about the wish and the saved memory.
 *
 * Invariant: what was saved is given up only when the Pod that was made from it runs as a whole, or the processes that were saved run on.
 */
export function planSleep(observed: SleepObserved): SleepPlan {
  const { sandbox, mode, pod } = observed;
  const wish = sandbox.status?.sleep;
  if (wish?.savedAt !== undefined && !(pod !== undefined && hasSaved(pod, wish))) {
    return planSaved(observed, wish);
  }
  if (pod === undefined) return none;
  return mode.mode === "Running" ? planWaking({ ...observed, pod }, wish) : planFalling({ ...observed, pod }, wish);
}

/** The wish is withdrawn, unless its Pod is already going: the saved memory is then all that is left of it. */
function planWaking(observed: SleepObserved & { readonly pod: Pod }, wish: SleepWish | undefined): SleepPlan {
  const { sandbox, pod } = observed;
  if (wish === undefined || pod.metadata.deletionTimestamp === undefined || !hasSaved(pod, wish)) return none;
  if (wish.savedAt === undefined) return planLeaving(observed, wish);
  return { wish, stage: { name: "restoring", isCold: isColdStartOf(sandbox.metadata, wish) } };
}

/** The Pod is there, and if anything of it was saved, nothing has run since. */
function planFalling(observed: SleepObserved & { readonly pod: Pod }, wish: SleepWish | undefined): SleepPlan {
  const { sandbox, mode, pod, nowMs } = observed;
  const { rung = "Stop" } = mode;
  if (wish !== undefined && hasSaved(pod, wish)) return planLeaving(observed, wish);
  if (rung === "Stop") return none;
  // A node carries out no wish that was called off; what was called off and is idle again is asked anew.
  if (wish?.rung !== rung || isCalledOff(sandbox)) {
    if (pod.metadata.deletionTimestamp !== undefined) return none;
    // A node carries out no wish for a Pod that the status does not name; this pass names it.
    if (sandbox.status?.podUID !== pod.metadata.uid) return { wish, stage: { name: "asked" } };
    return { wish: { id: newId(nowMs, wish, pod), rung }, stage: { name: "announce" } };
  }
  const answer = sleepAnswerOf(pod);
  if (answer?.id !== wish.id) return { wish, stage: { name: "asked" } };
  if (answer.reason === "Frozen" && rung === "Freeze") return { wish, stage: { name: "frozen" } };
  if (answer.reason === "SleepFailed") return { wish, stage: { name: "failed", why: answer.message } };
  return { wish, stage: { name: "asked" } };
}

/** The moment, in milliseconds, and later than every id that was used for this Pod: an answer to an earlier wish must not be taken for one to this. */
function newId(nowMs: number, wish: SleepWish | undefined, pod: Pod): string {
  const used = [wish?.id, sleepAnswerOf(pod)?.id].map((id) => (id === undefined || id === "" ? 0 : Number(id) + 1));
  return String(Math.max(Math.floor(nowMs), ...used));
}

/** The memory of this very Pod is on disk. A Sandbox that is to be stopped by now keeps it all the same until its Pod has gone. */
function planLeaving({ pod, nowMs }: SleepObserved & { readonly pod: Pod }, wish: SleepWish): SleepPlan {
  if (wish.savedAt !== undefined) return { wish, stage: { name: "leaving" } };
  const { savedBytes } = sleepAnswerOf(pod) ?? {};
  const saved = { ...wish, savedAt: formatTimestamp(nowMs), ...(savedBytes !== undefined && { savedBytes }) };
  return { wish: saved, stage: { name: "note-saved" } };
}

/** The Pod whose memory was saved is gone; the present one, if there is one, was made to be restored. */
function planSaved(observed: SleepObserved, wish: SleepWish): SleepPlan {
  const { sandbox, mode, pod } = observed;
  const isAsleep = mode.mode === "Suspended";
  const restoring = { name: "restoring", isCold: isColdStartOf(sandbox.metadata, wish) } as const;
  if (pod === undefined) {
    if (isAsleep) return { wish, stage: { name: "saved" } };
    const failure = restoring.isCold ? undefined : failedBefore(sandbox);
    return { wish, stage: failure ?? restoring };
  }
  const restore = restoreOf(pod);
  if (restore?.state === "failed") {
    const isTold = hasFailedRestore(sandbox) || isAsleep;
    return { wish, stage: { name: "restore-failed", why: restore.message, isTold } };
  }
  const isSettled = restore?.state === "restored" || (restore === undefined && pod.status?.phase === "Running");
  if (!isSettled) return { wish, stage: isAsleep && !mayRun(pod) ? { name: "leaving" } : restoring };
  // It runs, from its memory or without: what follows is as if it had never slept.
  const { sleep: _sleep, ...status } = sandbox.status ?? {};
  return planSleep({ ...observed, sandbox: { ...sandbox, status } });
}

/** Whether anything of the guest runs in a Pod that was made to be restored. */
export function mayRun(pod: Pod): boolean {
  return !hasEnded(pod) && (restoreOf(pod) !== undefined || pod.status?.phase === "Running");
}

/** The status remembers a restore that failed, until the user changes the spec, suspends the Sandbox or gives the memory up. */
function failedBefore(sandbox: Sandbox): SleepStage | undefined {
  if (!hasFailedRestore(sandbox)) return undefined;
  const why = findCondition(sandbox.status?.conditions, "Ready")?.message ?? "";
  return { name: "restore-failed", why, isTold: true };
}
