import type { SleepAnswer, SleepWish } from "@agent-sandbox/api";
import type { SleepState } from "./sleep-states.ts";

/** What the next step of a pod's sleep follows from. */
export interface SleepQuestion {
  /** What its Sandbox asks for; undefined where it asks for nothing, or is not proven to be the pod's. */
  readonly wish: SleepWish | undefined;
  readonly state: SleepState;
  /** Whether every container that the pod should have runs: only as a whole it can stand still and go on. */
  readonly isWhole: boolean;
  /** Whether the pod has ever been asked: one that was not says nothing. */
  readonly wasAsked: boolean;
  readonly nowMs: number;
}

/** One thing to do about a pod's sleep. */
export type SleepStep =
  /** Stops every process where it stands. */
  | { readonly do: "freeze"; readonly wish: string }
  /** Lets frozen processes go on. */
  | { readonly do: "thaw" }
  /** Writes the memory to disk; the processes are paused then. */
  | { readonly do: "save"; readonly wish: string }
  /** Discards what was saved and lets the paused processes go on. */
  | { readonly do: "continue" };

/** The next step, or what to answer. */
export interface SleepPlan {
  readonly step?: SleepStep;
  readonly answer?: SleepAnswer;
  readonly requeueAfterMs?: number;
}

/** Decides; the states of freezer and disk are the truth, and what was answered before is not asked. */
export function planSleep(question: SleepQuestion): SleepPlan {
  const { wish, state, isWhole, wasAsked, nowMs } = question;
  // Memory on disk is good although its sandbox has ended since: nothing ran after it was written.
  if (wish?.rung === "Hibernate" && state.saved !== undefined) return answered(wish, state);
  if (!isWhole || wish === undefined) {
    const answer = { id: wish?.id ?? "", reason: "Awake", message: "" } as const;
    const wake = wakeStep(state);
    if (wake !== undefined) return { step: wake };
    return wasAsked || wish !== undefined ? { answer } : {};
  }
  const done = answered(wish, state);
  if (done.answer !== undefined) return done;
  // Memory that was saved for an earlier wish does not fit the files of a pod that is only frozen, and then runs on.
  if (state.saved !== undefined && wish.rung === "Freeze") return { step: { do: "continue" } };
  const { failure } = state;
  if (failure !== undefined && failure.wish === wish.id && nowMs < failure.retryAtMs) {
    const answer = { id: wish.id, reason: "SleepFailed", message: failure.message } as const;
    return { answer, requeueAfterMs: failure.retryAtMs - nowMs };
  }
  return { step: { do: wish.rung === "Freeze" ? "freeze" : "save", wish: wish.id } };
}

/** What lets processes go on that stand still, if they do. What was saved comes first: it must be gone before anything runs. */
function wakeStep({ isFrozen, saved }: SleepState): SleepStep | undefined {
  if (saved !== undefined) return { do: "continue" };
  return isFrozen ? { do: "thaw" } : undefined;
}

/** The answer to a wish that is fulfilled, if it is. */
function answered({ id, rung }: SleepWish, { isFrozen, saved, frozen = "" }: SleepState): SleepPlan {
  if (rung === "Freeze")
    return isFrozen && saved === undefined ? { answer: { id, reason: "Frozen", message: frozen } } : {};
  if (saved === undefined) return {};
  const { memoryBytes, standstillMs } = saved;
  const message = `in ${Math.round(standstillMs)} ms`;
  return { answer: { id, reason: "Saved", message, savedBytes: memoryBytes } };
}
