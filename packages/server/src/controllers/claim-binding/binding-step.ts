import type { Sandbox } from "@agent-sandbox/api";
import type { ClaimProblem } from "../claim-status/claim-problem.ts";
import type { ClaimAction } from "./actions.ts";

/** How a claim comes to its Sandbox: it has one, something must be done first, it waits, or it cannot. */
export type BindingStep =
  | { readonly kind: "bound"; readonly sandbox: Sandbox; readonly problem?: ClaimProblem }
  | { readonly kind: "act"; readonly actions: readonly ClaimAction[]; readonly spare?: number }
  | WaitStep
  | ClaimProblem;

/** No member of the pool can be taken; the warm queue brings the claim back when one can. */
export interface WaitStep {
  readonly kind: "wait";
  readonly poolUid: string;
  /** When the claim stops waiting by itself; absent: never. */
  readonly untilMs?: number;
  /** Absent while the wait is a short one: the status then stays as it is. */
  readonly problem?: ClaimProblem;
  readonly spare: number;
}

/** Carries these out and plans again. */
export function act(...actions: readonly ClaimAction[]): BindingStep & { readonly kind: "act" } {
  return { kind: "act", actions };
}
