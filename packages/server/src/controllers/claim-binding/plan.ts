import type { Sandbox, SandboxClaim, SandboxClaimStatus } from "@agent-sandbox/api";
import { findCondition, isControlledBy, sandboxClaims } from "@agent-sandbox/api";
import { type ClaimProblem, claimProblem } from "../claim-status/claim-problem.ts";
import { planClaimExpired, planClaimStatus } from "../claim-status/plan.ts";
import type { EventNote } from "../event-recorder.ts";
import type { ClaimAction } from "./actions.ts";
import type { WaitStep } from "./binding-step.ts";
import { claimExpiry } from "./claim-expiry.ts";
import { coldSandboxName } from "./cold-sandbox.ts";
import { expiredNote, planRefusalNotes } from "./events.ts";
import { boundName, findSandbox } from "./find-sandbox.ts";
import { reservationOf } from "./judgement.ts";
import type { ClaimObserved } from "./observe.ts";
import { podMetadataProblem } from "./pod-metadata-policy.ts";
import { bindDeadlineMs } from "./start.ts";
import { takeSandbox } from "./take-sandbox.ts";

/** What a pass does next: actions, after which it plans again, or, when there are none, what it reports. */
export interface ClaimPlan {
  /** To be carried out in this order, up to the first whose outcome is not the planned one. */
  readonly actions: readonly ClaimAction[];
  /** What the status is to say; absent: it stays as it is. */
  readonly status?: SandboxClaimStatus;
  /** The Sandbox that the status describes. */
  readonly sandbox?: Sandbox;
  /** Events, recorded once the status is written. */
  readonly notes?: readonly EventNote[];
  /** The pool whose next free member brings the claim back. */
  readonly waitFor?: string;
  /** How many members of the pool could be taken, where the claim looked for one. */
  readonly spare?: number;
  /** When the claim is looked at again. */
  readonly next: NextLook;
}

/** When a claim is looked at again, apart from events. */
export type NextLook =
  | { readonly kind: "none" }
  | { readonly kind: "after"; readonly afterMs: number }
  /** After a backoff that grows, in `withinMs` at the latest. */
  | { readonly kind: "retry"; readonly problem: ClaimProblem; readonly withinMs?: number };

/** After an expiry was announced the removal follows in a pass of its own, at once. */
const afterMarkMs = 1;

const never: NextLook = { kind: "none" };

/** Decides for one claim; never reads a clock, a cache or the network, and changes nothing. */
export function planClaim(observed: ClaimObserved): ClaimPlan {
  const { claim, facts, legacyPolicy, config, nowMs } = observed;
  if (legacyPolicy !== undefined && !facts.tried.has("remove-legacy-policy")) {
    return act({ do: "remove-legacy-policy", policy: legacyPolicy });
  }
  if (claim.metadata.deletionTimestamp !== undefined) return { actions: [], next: never };
  if (claimExpiry(claim, claim.status, nowMs).expired) return planExpiry(observed);
  const refused =
    bindTimeout(claim, nowMs) ?? podMetadataProblem(claim.spec.additionalPodMetadata, config.allowedLabelDomains);
  if (refused !== undefined) return conclude(observed, { problem: refused });
  const step = findSandbox(observed) ?? takeSandbox(observed);
  if (facts.failure !== undefined) {
    return conclude(observed, { problem: facts.failure, ...(step.kind === "bound" ? { sandbox: step.sandbox } : {}) });
  }
  switch (step.kind) {
    case "act":
      return { ...act(...step.actions), ...(step.spare === undefined ? {} : { spare: step.spare }) };
    case "bound":
      return conclude(observed, step);
    case "wait":
      return planWait(observed, step);
    case "problem":
      return conclude(observed, { problem: step });
  }
}

function act(...actions: readonly ClaimAction[]): ClaimPlan {
  return { actions, next: never };
}

/** An unbound claim with a limit ends there; one with a reservation is as good as bound. */
function bindTimeout(claim: SandboxClaim, nowMs: number): ClaimProblem | undefined {
  const deadlineMs = bindDeadlineMs(claim);
  if (deadlineMs === undefined || nowMs < deadlineMs) return undefined;
  if (boundName(claim) !== "" || reservationOf(claim) !== undefined) return undefined;
  return claimProblem("BindTimeout", `no Sandbox could be bound within ${claim.spec.bindTimeoutSeconds ?? 0} s`);
}

/** What a pass came to: the whole status, and when to look again. */
function conclude(
  observed: ClaimObserved,
  { sandbox, problem }: { readonly sandbox?: Sandbox; readonly problem?: ClaimProblem },
): ClaimPlan {
  const { claim, nowMs } = observed;
  // The binding stands and only the cache is behind: the status is true as it is.
  if (problem?.reason === "SandboxCreatePending" && boundName(claim) !== "") {
    return { actions: [], next: { kind: "retry", problem } };
  }
  const status = planClaimStatus({ claim, sandbox, problem, expired: false, nowMs });
  const described = sandbox === undefined ? {} : { sandbox };
  const expiry = claimExpiry(claim, status, nowMs);
  if (expiry.expired) return { ...announceExpiry(claim, status, nowMs), ...described };
  const deadline = expiry.remainingMs === undefined ? {} : { withinMs: Math.max(1, expiry.remainingMs) };
  const next: NextLook =
    problem?.retry === true ? { kind: "retry", problem, ...deadline } : lookAgain({ ...claim, status }, nowMs);
  return { actions: [], status, ...described, notes: planRefusalNotes(claim, status), next };
}

/** A short wait leaves the status alone: a condition that is gone two seconds later would mislead. */
function planWait(observed: ClaimObserved, { poolUid, spare, untilMs, problem }: WaitStep): ClaimPlan {
  const end: ClaimPlan =
    problem === undefined
      ? { actions: [], next: lookAgain(observed.claim, observed.nowMs, untilMs) }
      : conclude(observed, { problem });
  return { ...end, waitFor: poolUid, spare };
}

/** At the earliest of: the end of a wait, the claim's expiry, and the limit for binding it. */
function lookAgain(claim: SandboxClaim, nowMs: number, untilMs?: number): NextLook {
  const expiry = claimExpiry(claim, claim.status, nowMs);
  const deadlineMs = boundName(claim) === "" ? bindDeadlineMs(claim) : undefined;
  const waitsMs = [
    untilMs === undefined ? undefined : untilMs - nowMs,
    expiry.expired ? 0 : expiry.remainingMs,
    deadlineMs === undefined || deadlineMs <= nowMs ? undefined : deadlineMs - nowMs,
  ].filter((waitMs) => waitMs !== undefined);
  return waitsMs.length === 0 ? never : { kind: "after", afterMs: Math.max(1, Math.min(...waitsMs)) };
}

/** The end of a claim is announced first: nothing is deleted before the status that says so is written. */
function planExpiry(observed: ClaimObserved): ClaimPlan {
  const { claim, facts, nowMs } = observed;
  if (findCondition(claim.status?.conditions, "Ready")?.reason !== "ClaimExpired") {
    return announceExpiry(claim, claim.status, nowMs);
  }
  const policy = claim.spec.lifecycle?.shutdownPolicy ?? "Retain";
  if (policy === "Retain") return planRetained(observed);
  if (!facts.tried.has("delete-claim")) return act({ do: "delete-claim", policy });
  return { actions: [], next: facts.failure === undefined ? never : { kind: "retry", problem: facts.failure } };
}

function announceExpiry(claim: SandboxClaim, status: SandboxClaimStatus | undefined, nowMs: number): ClaimPlan {
  const next: NextLook = { kind: "after", afterMs: afterMarkMs };
  return { actions: [], status: planClaimExpired(claim, status, nowMs), notes: [expiredNote], next };
}

/** The Sandbox goes, the claim stays and says why. */
function planRetained(observed: ClaimObserved): ClaimPlan {
  const { claim, known, facts } = observed;
  if (facts.failure !== undefined) return concludeRetained(observed, facts.failure);
  const name = claim.status?.sandbox?.name ?? reservationOf(claim) ?? coldSandboxName(claim);
  const sandbox = known.sandbox(name);
  const isOurs = sandbox !== undefined && isControlledBy(sandbox, sandboxClaims, claim);
  if (!isOurs && !facts.asked.has(name)) return act({ do: "read-sandbox", name });
  if (sandbox === undefined || sandbox.metadata.deletionTimestamp !== undefined) return concludeRetained(observed);
  if (isOurs)
    return facts.tried.has("delete-sandbox") ? concludeRetained(observed) : act({ do: "delete-sandbox", sandbox });
  const message = `sandbox "${name}" is not owned by claim "${claim.metadata.name}"`;
  return concludeRetained(observed, claimProblem("SandboxNotOwned", message));
}

function concludeRetained({ claim, nowMs }: ClaimObserved, problem?: ClaimProblem): ClaimPlan {
  const status = planClaimStatus({ claim, sandbox: undefined, problem, expired: true, nowMs });
  return { actions: [], status, next: problem?.retry === true ? { kind: "retry", problem } : never };
}
