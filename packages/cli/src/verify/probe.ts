import { type Attempt, describeAttempt, type Outcome } from "./attempt.ts";
import type { Ground } from "./ground.ts";

/** What to try and what shows that the trying works: a control is the same way to something that is meant to be reached. */
export interface Trial {
  readonly attempts: readonly Attempt[];
  readonly controls: readonly Attempt[];
}

/** What a look came to, where no attempt of `sandbox-probe` would do. */
export interface Look {
  readonly attempts: readonly Outcome[];
  readonly controls: readonly Outcome[];
}

interface ProbeBase {
  /** Area and name, stable across versions. */
  readonly id: string;
  /** What is tried, in words. */
  readonly tries: string;
  /** It may end its sandbox or needs the machine for itself, so it runs while no other does, and its attempts one by one. */
  readonly isAlone?: boolean;
}

/** A probe made of attempts; text says why it cannot be made here. */
export interface TrialProbe extends ProbeBase {
  readonly plan: (ground: Ground) => Trial | string;
}

/** A probe that looks for itself. */
export interface LookProbe extends ProbeBase {
  readonly look: (ground: Ground, signal: AbortSignal) => Promise<Look | string>;
}

/** One promise, tested. */
export type Probe = TrialProbe | LookProbe;

/** What a probe found. */
export interface Finding {
  readonly id: string;
  readonly tries: string;
  readonly result: "held" | "broken" | "not-applicable";
  /** Whether everything that must come through did. */
  readonly control: "worked" | "failed" | "none";
  readonly detail: string;
  /** What was tried, and what each attempt came to. */
  readonly attempts: readonly Outcome[];
  readonly controls: readonly Outcome[];
}

/** Judges what was seen: one attempt that came through breaks the promise; a control that did not, or an attempt that was cut short, leaves it unproven. */
export function judge({ id, tries }: ProbeBase, { attempts, controls }: Look): Finding {
  const hole = attempts.find(({ through }) => through);
  const dead = controls.find(({ through }) => !through) ?? attempts.find(({ unknown }) => unknown === true);
  const isTried = attempts.length > 0 && controls.length > 0;
  const detail = [
    ...(hole === undefined ? [] : [hole.detail]),
    ...(dead === undefined ? [] : [`unproven: ${dead.detail}`]),
    ...(isTried ? [] : ["nothing was tried"]),
  ];
  return {
    id,
    tries,
    result: hole === undefined ? "held" : "broken",
    control: dead === undefined && isTried ? "worked" : "failed",
    detail: detail.join("; "),
    attempts,
    controls,
  };
}

/** For a probe that cannot be made here. */
export function notApplicable({ id, tries }: ProbeBase, why: string): Finding {
  return { id, tries, result: "not-applicable", control: "none", detail: why, attempts: [], controls: [] };
}

/** Whether nothing was found, and everything that was found out is proven. */
export function isSound(findings: readonly Finding[]): boolean {
  const made = findings.filter(({ result }) => result !== "not-applicable");
  return made.length > 0 && made.every(({ result, control }) => result === "held" && control === "worked");
}

/** An outcome that names its attempt. */
export function named(attempt: Attempt, outcome: Outcome): Outcome {
  return { ...outcome, detail: `${describeAttempt(attempt)}: ${outcome.detail}` };
}
