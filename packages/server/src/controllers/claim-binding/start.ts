import type { SandboxClaim } from "@agent-sandbox/api";
import { type ClaimProblem, claimProblem } from "../claim-status/claim-problem.ts";
import type { ColdReason } from "../controller-metrics.ts";
import { type Candidate, pickMember } from "./pick-member.ts";

/** How an unbound claim goes on. */
export type StartStep =
  | { readonly do: "adopt"; readonly member: Candidate }
  | { readonly do: "create"; readonly reason: ColdReason }
  /** Until a member can be taken; without `untilMs` there is no limit, and with a problem the status says why. */
  | { readonly do: "wait"; readonly untilMs?: number; readonly problem?: ClaimProblem }
  | { readonly do: "refuse"; readonly problem: ClaimProblem };

/** What the decision depends on. */
export interface StartObserved {
  readonly claim: SandboxClaim;
  readonly candidates: readonly Candidate[];
  readonly firstSeenMs: number;
  readonly nowMs: number;
}

/** How long a young claim waits for a member that has no address yet, before it starts cold. */
const candidateGraceMs = 2_000;

/** Warm where possible, within what the claim's policy allows. */
export function planStart({ claim, candidates, firstSeenMs, nowMs }: StartObserved): StartStep {
  const { startPolicy = "WarmOrCold", env = [], volumeClaimTemplates = [] } = claim.spec;
  const bespoke: ColdReason | undefined =
    env.length > 0 ? "claim-env" : volumeClaimTemplates.length > 0 ? "claim-volumes" : undefined;
  if (startPolicy === "WarmOnly" && bespoke !== undefined) {
    const message =
      "startPolicy WarmOnly cannot be combined with env or volumeClaimTemplates, which need a fresh Sandbox";
    return { do: "refuse", problem: claimProblem("InvalidConfiguration", message) };
  }
  if (bespoke !== undefined) return { do: "create", reason: bespoke };
  if (startPolicy === "ColdOnly") return { do: "create", reason: "policy" };
  const member = pickMember(candidates);
  if (member !== undefined) return { do: "adopt", member };
  if (startPolicy === "WarmOnly") {
    const message = `waiting for a warm Sandbox of pool "${claim.spec.warmPoolRef.name}"`;
    return { do: "wait", problem: claimProblem("WarmSandboxPending", message) };
  }
  const untilMs = firstSeenMs + candidateGraceMs;
  // What cannot be taken has no address yet.
  const isPending = candidates.length > 0;
  if (isPending && nowMs < untilMs) return { do: "wait", untilMs };
  return { do: "create", reason: isPending ? "none-ready" : "pool-empty" };
}

/** When an unbound claim gives up, if it has a limit. */
export function bindDeadlineMs(claim: SandboxClaim): number | undefined {
  const { bindTimeoutSeconds } = claim.spec;
  const bornMs = Date.parse(claim.metadata.creationTimestamp ?? "");
  if (bindTimeoutSeconds === undefined || Number.isNaN(bornMs)) return undefined;
  return bornMs + bindTimeoutSeconds * 1000;
}
