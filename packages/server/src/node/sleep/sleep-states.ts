import { findCondition, type Pod } from "@agent-sandbox/api";
import type { SavedState } from "../host/saved-state.ts";

/** Why a pod could not be put to sleep, and when that is tried again. */
export interface SleepFailure {
  /** The wish that it was about. */
  readonly wish: string;
  readonly message: string;
  readonly retryAtMs: number;
  readonly tries: number;
}

/** How far a pod is asleep, as freezer and disk have it. */
export interface SleepState {
  /** Its processes are held by the freezer. */
  readonly isFrozen: boolean;
  /** What the last freeze left in memory. */
  readonly frozen?: string;
  /** Its processes are paused, and this is their memory. */
  readonly saved?: SavedState;
  /** It is about to be put to sleep: who connects waits for its next wake. */
  readonly isFalling?: boolean;
  readonly failure?: SleepFailure;
}

const awake: SleepState = { isFrozen: false };

/** Reasons of the Ready condition of a pod that stands still. */
export const stillReasons = { frozen: "Frozen", saved: "Saved" } as const;

/** What this agent knows of the sleep of its pods, by uid; those that are not here are awake. Bound: the pods of this node. */
export class SleepStates {
  readonly #states = new Map<string, SleepState>();
  /** Pods of which a verb's answer was lost; the host is asked before anything follows. */
  readonly #unsure = new Set<string>();

  of(uid: string): SleepState {
    return this.#states.get(uid) ?? awake;
  }

  set(uid: string, state: SleepState): void {
    this.#unsure.delete(uid);
    this.#states.set(uid, state);
  }

  /** The answer of a verb was lost: what became of the pod only the host can tell. */
  doubt(uid: string): void {
    this.#unsure.add(uid);
  }

  isUnsure(uid: string): boolean {
    return this.#unsure.has(uid);
  }

  forget(uid: string): void {
    this.#states.delete(uid);
    this.#unsure.delete(uid);
  }

  /** Whether a pod stands still, or is about to. */
  isStill(uid: string): boolean {
    return isStill(this.of(uid)) || this.#unsure.has(uid);
  }

  /**
   * Whether a pod takes connections, which is known here before the API has it: from the moment that it falls asleep it does not, and from its thaw
   * on it does although its Ready condition says otherwise for a moment.
   */
  serves(pod: Pod, isServing: boolean): boolean {
    const uid = pod.metadata.uid ?? "";
    if (this.isStill(uid)) return false;
    return isServing || (pod.metadata.deletionTimestamp === undefined && wasStill(pod));
  }
}

/** Whether processes stand still, or are about to. */
function isStill({ isFrozen, saved, isFalling }: SleepState): boolean {
  return isFrozen || saved !== undefined || isFalling === true;
}

function wasStill(pod: Pod): boolean {
  const ready = findCondition(pod.status?.conditions, "Ready");
  return ready?.reason === stillReasons.frozen || ready?.reason === stillReasons.saved;
}
