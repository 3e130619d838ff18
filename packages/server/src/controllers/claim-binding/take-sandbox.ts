import {
  annotationKeys,
  formatTimestampMs,
  parseKey,
  type SandboxClaim,
  type SandboxWarmPool,
} from "@agent-sandbox/api";
import { adoptionConflict, claimProblem, isProblem } from "../claim-status/claim-problem.ts";
import type { ColdReason } from "../controller-metrics.ts";
import type { TemplateLookup } from "../template-lookup.ts";
import { Staleness } from "../warm-pool-population/staleness.ts";
import type { ClaimAction } from "./actions.ts";
import { act, type BindingStep } from "./binding-step.ts";
import { coldSandbox } from "./cold-sandbox.ts";
import { refusalsMax, templateIn } from "./find-sandbox.ts";
import { judge } from "./judgement.ts";
import type { ClaimObserved } from "./observe.ts";
import type { Candidate } from "./pick-member.ts";
import { mergePodMetadata } from "./pod-metadata-policy.ts";
import { planStart } from "./start.ts";
import { planTransfer } from "./transfer.ts";

/** A Sandbox for a claim that has none: a member of its pool, or one of its own. */
export function takeSandbox(observed: ClaimObserved): BindingStep {
  const { claim, pool, known, firstSeenMs, nowMs } = observed;
  if (pool === undefined || pool.metadata.deletionTimestamp !== undefined) {
    return claimProblem("WarmPoolNotFound", `SandboxWarmPool "${claim.spec.warmPoolRef.name}" not found`);
  }
  const lookup = known.template(pool.spec.sandboxTemplateRef.name);
  // Found before anything is reserved: a reservation that cannot be completed would keep the member from other claims.
  const merged = mergePodMetadata(templateIn(lookup)?.spec.podTemplate.metadata, claim.spec.additionalPodMetadata);
  if (isProblem(merged)) return merged;
  const poolUid = pool.metadata.uid ?? "";
  const offered = known.candidates(poolUid);
  const isUsable = usableBy(observed, pool, lookup);
  let usable = offered;
  let step = planStart({ claim, candidates: offered, firstSeenMs, nowMs });
  if (step.do === "adopt" && !isUsable(step.member)) {
    usable = offered.filter(isUsable);
    step = planStart({ claim, candidates: usable, firstSeenMs, nowMs });
  }
  const spare = usable.filter(({ readiness }) => readiness !== "pending").length;
  const drop = dropping(offered, usable);
  switch (step.do) {
    case "refuse":
      return step.problem;
    case "wait":
      if (drop.length > 0) return act(...drop);
      return { kind: "wait", poolUid, spare, ...step };
    case "create":
      return after(drop, spare, createCold(observed, pool, lookup, step.reason));
    case "adopt":
      return after(drop, spare, adopt(observed, pool, lookup, step.member));
  }
}

function after(first: readonly ClaimAction[], spare: number, step: BindingStep): BindingStep {
  return step.kind === "act" ? { ...step, actions: [...first, ...step.actions], spare } : step;
}

/**
 * Whether a member that the warm queue offers can be taken: the queue learns of a change by an event, which this process's
 * own writes precede. Asked for the chosen member, and for the others only when that one cannot be taken.
 */
function usableBy(
  { claim, known }: ClaimObserved,
  pool: SandboxWarmPool,
  lookup: TemplateLookup,
): (candidate: Candidate) => boolean {
  const template = templateIn(lookup);
  // Under Recreate the pool is about to delete a stale member.
  const isRecreated = pool.spec.updateStrategy?.type === "Recreate" && template !== undefined;
  const staleness = isRecreated ? new Staleness(template) : undefined;
  return ({ key }) => {
    const sandbox = known.sandbox(parseKey(key).name);
    return sandbox !== undefined && judge(sandbox, claim, pool) === "takeable" && staleness?.isStale(sandbox) !== true;
  };
}

function dropping(offered: readonly Candidate[], usable: readonly Candidate[]): readonly ClaimAction[] {
  if (usable === offered) return [];
  const kept = new Set(usable);
  return [{ do: "drop-members", keys: offered.filter((each) => !kept.has(each)).map(({ key }) => key) }];
}

/** Reserves and takes one member: two writes, each against the version that was judged. */
function adopt(
  observed: ClaimObserved,
  pool: SandboxWarmPool,
  lookup: TemplateLookup,
  { key }: Candidate,
): BindingStep {
  const { claim, known, facts, nowMs } = observed;
  const name = parseKey(key).name;
  if (facts.refused.reserve >= refusalsMax) {
    return adoptionConflict(`reserving sandbox "${name}" (conflicting concurrent write)`);
  }
  const sandbox = known.sandbox(name);
  if (sandbox === undefined) return act({ do: "drop-members", keys: [key] });
  const annotations = { ...firstSightMarks(observed), [annotationKeys.sandboxName]: name };
  const patch = planTransfer(sandbox, annotated(claim, annotations), { template: templateIn(lookup), nowMs });
  if (isProblem(patch)) return patch;
  const { uid, resourceVersion } = claim.metadata;
  return act(
    { do: "reserve", key, poolUid: pool.metadata.uid ?? "", metadata: { uid, resourceVersion, annotations } },
    { do: "transfer", name, patch },
  );
}

/**
 * A cold start must not happen behind a reservation that the cache does not show yet: the claim is written against its
 * version first, or read when there is nothing to write.
 */
function createCold(
  observed: ClaimObserved,
  pool: SandboxWarmPool,
  lookup: TemplateLookup,
  reason: ColdReason,
): BindingStep {
  const { claim, facts } = observed;
  if (lookup.kind === "missing") return claimProblem("TemplateNotFound", lookup.message);
  if (lookup.kind === "not-ready") return claimProblem("TemplateNotReady", lookup.message);
  const marks = firstSightMarks(observed);
  const sandbox = coldSandbox(annotated(claim, marks), lookup.template);
  if (isProblem(sandbox)) return sandbox;
  const create: ClaimAction = { do: "create-sandbox", sandbox, poolName: pool.metadata.name, reason };
  if (Object.keys(marks).length > 0) {
    const { uid, resourceVersion } = claim.metadata;
    return act({ do: "mark-claim", metadata: { uid, resourceVersion, annotations: marks } }, create);
  }
  return facts.isClaimCurrent ? act(create) : act({ do: "read-claim" });
}

/** When and under which trace the claim was first seen; written with the first write that the claim needs anyway. */
function firstSightMarks({ claim, config, firstSeenMs, traceContext }: ClaimObserved): Record<string, string> {
  if (!config.claimObservabilityAnnotations) return {};
  const present = claim.metadata.annotations ?? {};
  const isSeen = present[annotationKeys.controllerFirstObservedAt] !== undefined;
  const isTraced = present[annotationKeys.traceContext] !== undefined || traceContext === "";
  return {
    ...(isSeen ? {} : { [annotationKeys.controllerFirstObservedAt]: formatTimestampMs(firstSeenMs) }),
    ...(isTraced ? {} : { [annotationKeys.traceContext]: traceContext }),
  };
}

/** The claim as it is once these annotations are written. */
function annotated(claim: SandboxClaim, annotations: Readonly<Record<string, string>>): SandboxClaim {
  const { metadata } = claim;
  return { ...claim, metadata: { ...metadata, annotations: { ...metadata.annotations, ...annotations } } };
}
