import { adoptionConflict, type ClaimProblem, claimProblem, failedRequest } from "../claim-status/claim-problem.ts";
import { errorText } from "../sandbox-lifecycle/error-text.ts";
import type { ActionOutcome, ClaimAction, VoidReason } from "./actions.ts";

/** What a pass has learnt from the answers to its own requests; nothing of it outlives the pass. */
export interface PassFacts {
  /** Kinds of actions that were carried out or tried: some are tried once in a pass. */
  readonly tried: ReadonlySet<ClaimAction["do"]>;
  /** Names of Sandboxes that the server was asked for: the caches hold its answer. */
  readonly asked: ReadonlySet<string>;
  /** The server has confirmed the version of the claim that the plan goes by, or told a newer one. */
  readonly isClaimCurrent: boolean;
  /** How often the server refused each of these for a version that was not the newest. */
  readonly refused: Readonly<Record<"reserve" | "transfer" | "clear-reservation", number>>;
  /** The Sandbox that this pass took over or made, if it succeeded. */
  readonly launched?: { readonly name: string; readonly launchType: "warm" | "cold" };
  /** The reservation that this pass took off the claim. */
  readonly cleared?: { readonly name: string; readonly why: VoidReason };
  /** Ends the pass: it is reported and nothing more is tried. */
  readonly failure?: ClaimProblem;
}

/** At the start of a pass. */
export const nothingLearnt: PassFacts = {
  tried: new Set(),
  asked: new Set(),
  isClaimCurrent: false,
  refused: { reserve: 0, transfer: 0, "clear-reservation": 0 },
};

/** Adds what the outcome of one action says. */
export function learn(facts: PassFacts, action: ClaimAction, outcome: ActionOutcome): PassFacts {
  const tried: PassFacts = { ...facts, tried: new Set(facts.tried).add(action.do) };
  switch (outcome.kind) {
    case "done":
      return learnDone(tried, action);
    case "member-leased":
      return tried;
    case "claim-changed":
      return { ...refusedOnce(tried, action), isClaimCurrent: true };
    case "sandbox-changed":
      return learnRead(refusedOnce(tried, action), action);
    case "failed":
      return { ...tried, failure: failureOf(action, outcome.error) };
  }
}

function learnDone(facts: PassFacts, action: ClaimAction): PassFacts {
  switch (action.do) {
    case "read-sandbox":
      return { ...facts, asked: new Set(facts.asked).add(action.name) };
    case "read-claim":
    case "mark-claim":
    case "reserve":
      return { ...facts, isClaimCurrent: true };
    case "clear-reservation":
      return { ...facts, isClaimCurrent: true, cleared: { name: action.name, why: action.why } };
    case "transfer":
      return { ...facts, launched: { name: action.name, launchType: "warm" } };
    case "create-sandbox":
      return { ...facts, launched: { name: action.sandbox.metadata.name, launchType: "cold" } };
    default:
      return facts;
  }
}

/** A Sandbox that was not as planned has been read again. A refused transfer may be one that an earlier pass had made. */
function learnRead(facts: PassFacts, action: ClaimAction): PassFacts {
  if (action.do === "transfer") {
    const launched = { name: action.name, launchType: "warm" } as const;
    return { ...facts, asked: new Set(facts.asked).add(action.name), launched };
  }
  if (action.do !== "create-sandbox") return facts;
  return { ...facts, asked: new Set(facts.asked).add(action.sandbox.metadata.name) };
}

function refusedOnce(facts: PassFacts, action: ClaimAction): PassFacts {
  switch (action.do) {
    case "reserve":
    case "transfer":
    case "clear-reservation":
      return { ...facts, refused: { ...facts.refused, [action.do]: facts.refused[action.do] + 1 } };
    default:
      return facts;
  }
}

function failureOf(action: ClaimAction, error: unknown): ClaimProblem {
  switch (action.do) {
    case "create-sandbox":
      return claimProblem("ReconcilerError", `sandbox create error: ${errorText(error)}`, {
        retry: true,
        cause: error,
      });
    case "clear-reservation":
      return notCleared(action.name, action.why, error);
    default:
      return failedRequest(error);
  }
}

/** The reservation stays for the next pass to clear. */
export function notCleared(name: string, why: VoidReason, cause?: unknown): ClaimProblem {
  return adoptionConflict(`sandbox "${name}" ${why} and reference cleanup failed`, cause);
}
