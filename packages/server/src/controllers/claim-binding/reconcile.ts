import type { SandboxClaim } from "@agent-sandbox/api";
import { keyOf } from "@agent-sandbox/api";
import { done, type Outcome } from "@agent-sandbox/kube";
import { applyActions } from "./apply.ts";
import type { ClaimContext } from "./claim-context.ts";
import { nothingLearnt } from "./facts.ts";
import { observeClaim } from "./observe.ts";
import { type ClaimPlan, planClaim } from "./plan.ts";
import { reportClaim } from "./report.ts";

/**
 * How often a pass may plan. A warm claim takes two plans; the longest chain of answers that each change the plan, five
 * refusals of each of three writes with the reads between them, takes fewer than this.
 */
const plansMax = 32;

/** One pass over one claim: observe, plan and apply until nothing is left to do, then report. */
export function claimReconciler(context: ClaimContext): (key: string, signal: AbortSignal) => Promise<Outcome> {
  return async (key, signal) => {
    context.warm.unwait(key);
    const claim = context.extensions.claims.get(key);
    if (claim !== undefined) return reconcileClaim(context, claim, signal);
    context.times.forget(key);
    context.unresolved.delete(key);
    return done;
  };
}

async function reconcileClaim(context: ClaimContext, first: SandboxClaim, signal: AbortSignal): Promise<Outcome> {
  let claim = first;
  let facts = nothingLearnt;
  for (let plans = 0; plans < plansMax; plans++) {
    const observed = observeClaim(context, claim, facts);
    const plan = planClaim(observed);
    measureSpare(context, claim, plan);
    if (plan.actions.length === 0) return reportClaim(context, observed, plan, signal);
    facts = await applyActions(context, claim, { actions: plan.actions, facts }, signal);
    // The answers are in the caches, and so is whatever the watch brought meanwhile.
    const newest = context.extensions.claims.get(keyOf(first));
    if (newest === undefined) return done;
    // Another claim has the name: it gets a pass of its own, which knows nothing of this one.
    if (newest.metadata.uid !== first.metadata.uid) return { kind: "requeue-after", afterMs: 1 };
    claim = newest;
  }
  return { kind: "failed", error: new Error(`claim ${keyOf(first)} was not settled by ${plansMax} plans`) };
}

function measureSpare({ metrics }: ClaimContext, claim: SandboxClaim, { spare }: ClaimPlan): void {
  if (spare === undefined) return;
  const labels = { namespace: claim.metadata.namespace ?? "", warmpool_name: claim.spec.warmPoolRef.name };
  metrics.poolQueue.set(labels, spare);
}
