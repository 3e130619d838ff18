import type { SandboxClaim } from "@agent-sandbox/api";
import type { ColdReason } from "../controller-metrics.ts";
import { ClaimProblem } from "./claim-problem.ts";
import type { Offer } from "./warm-queue.ts";

/** How an unbound claim goes on. */
export type StartStep =
  | { readonly do: "adopt"; readonly readiness: "ready" | "networked" }
  | { readonly do: "create"; readonly reason: ColdReason }
  | { readonly do: "wait"; readonly untilMs: number; readonly problem?: ClaimProblem };

/** What the decision depends on. */
export interface StartObserved {
  readonly claim: SandboxClaim;
  readonly offer: Offer;
  readonly firstSeenMs: number;
  readonly nowMs: number;
}

/** How long a young claim waits for a member that has no address yet, before it starts cold. */
export const candidateGraceMs = 2_000;

/** Warm where possible, within what the claim's policy allows. Throws a `ClaimProblem` for a claim that cannot be served. */
export function planStart({ claim, offer, firstSeenMs, nowMs }: StartObserved): StartStep {
  const { startPolicy = "WarmOrCold", env = [], volumeClaimTemplates = [] } = claim.spec;
  const bespoke: ColdReason | undefined =
    env.length > 0 ? "claim-env" : volumeClaimTemplates.length > 0 ? "claim-volumes" : undefined;
  if (startPolicy === "WarmOnly" && bespoke !== undefined) {
    const message =
      "startPolicy WarmOnly cannot be combined with env or volumeClaimTemplates, which need a fresh Sandbox";
    throw new ClaimProblem("InvalidConfiguration", message);
  }
  if (bespoke !== undefined) return { do: "create", reason: bespoke };
  if (startPolicy === "ColdOnly") return { do: "create", reason: "policy" };
  if (offer.ready > 0) return { do: "adopt", readiness: "ready" };
  if (offer.networked > 0) return { do: "adopt", readiness: "networked" };
  if (startPolicy === "WarmOnly") {
    const message = `waiting for a warm Sandbox of pool "${claim.spec.warmPoolRef.name}"`;
    return { do: "wait", untilMs: Number.POSITIVE_INFINITY, problem: new ClaimProblem("WarmSandboxPending", message) };
  }
  const untilMs = firstSeenMs + candidateGraceMs;
  if (offer.pending > 0 && nowMs < untilMs) return { do: "wait", untilMs };
  return { do: "create", reason: offer.pending > 0 ? "none-ready" : "pool-empty" };
}

/** When an unbound claim gives up, if it has a limit. */
export function bindDeadlineMs(claim: SandboxClaim): number | undefined {
  const { bindTimeoutSeconds } = claim.spec;
  const bornMs = Date.parse(claim.metadata.creationTimestamp ?? "");
  if (bindTimeoutSeconds === undefined || Number.isNaN(bornMs)) return undefined;
  return bornMs + bindTimeoutSeconds * 1000;
}
