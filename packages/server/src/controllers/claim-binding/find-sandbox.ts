import type { Sandbox, SandboxClaim, SandboxTemplate } from "@agent-sandbox/api";
import { annotationKeys, isControlledBy, labelKeys, sandboxClaims } from "@agent-sandbox/api";
import { adoptionConflict, type ClaimProblem, claimProblem, isProblem } from "../claim-status/claim-problem.ts";
import type { TemplateLookup } from "../template-lookup.ts";
import type { VoidReason } from "./actions.ts";
import { act, type BindingStep } from "./binding-step.ts";
import { coldSandboxName } from "./cold-sandbox.ts";
import { notCleared } from "./facts.ts";
import { judge, planClearReservation, reservationOf } from "./judgement.ts";
import type { ClaimObserved } from "./observe.ts";
import { planBoundMetadata, planTransfer } from "./transfer.ts";

/** Writes that the server refuses this often, each against what it last said, are left to the next pass. */
export const refusalsMax = 5;

/**
 * The Sandbox a claim has already: the one its status names, the one it has reserved, or the one a cold start of it made;
 * looked for strictly in this order, or a claim could get two. Undefined when it has none.
 */
export function findSandbox(observed: ClaimObserved): BindingStep | undefined {
  return findBound(observed) ?? findReserved(observed) ?? lostAdoption(observed) ?? findCold(observed);
}

/** Name of the Sandbox that the claim's status names, or an empty text. */
export function boundName(claim: SandboxClaim): string {
  return claim.status?.sandbox?.name ?? "";
}

/** What the status names, if it is the claim's; the server decides where the cache says otherwise. */
function findBound(observed: ClaimObserved): BindingStep | undefined {
  const { claim, known, facts } = observed;
  const name = boundName(claim);
  if (name === "") return undefined;
  const sandbox = known.sandbox(name);
  if (sandbox !== undefined && isControlledBy(sandbox, sandboxClaims, claim)) return finishBound(observed, sandbox);
  return facts.asked.has(name) ? undefined : act({ do: "read-sandbox", name });
}

function findReserved(observed: ClaimObserved): BindingStep | undefined {
  const { claim, pool, known, facts } = observed;
  const name = reservationOf(claim);
  if (name === undefined) return undefined;
  const sandbox = known.sandbox(name);
  const isAsked = facts.asked.has(name);
  if (sandbox === undefined) return isAsked ? clear(observed, name, "deleted") : act({ do: "read-sandbox", name });
  switch (judge(sandbox, claim, pool)) {
    case "ours":
      return migrate(observed, name) ?? finishBound(observed, sandbox);
    case "takeable":
      return finishAdoption(observed, sandbox);
    case "lost-to-claim":
    case "not-takeable":
      // Only the server may say that a committed reservation is void: the cache may be behind our own transfer.
      return isAsked ? clear(observed, name, "lost to another owner") : act({ do: "read-sandbox", name });
    case "foreign":
      return undefined;
  }
}

/** A committed reservation is finished whatever the member's state; no other member is tried. */
function finishAdoption(observed: ClaimObserved, sandbox: Sandbox): BindingStep {
  const { claim, facts, nowMs } = observed;
  const { name } = sandbox.metadata;
  if (facts.refused.transfer >= refusalsMax)
    return adoptionConflict(`sandbox "${name}" (conflicting concurrent write)`);
  const patch = planTransfer(sandbox, claim, { template: templateIn(templateOf(observed, sandbox)), nowMs });
  if (isProblem(patch)) return patch;
  return act({ do: "transfer", name, patch });
}

/** Takes the reservation of exactly this Sandbox off the claim; the search then goes on. */
function clear({ claim, facts }: ClaimObserved, name: string, why: VoidReason): BindingStep {
  if (facts.refused["clear-reservation"] >= refusalsMax) return notCleared(name, why);
  const { uid, resourceVersion } = claim.metadata;
  const metadata = { uid, resourceVersion, ...planClearReservation(claim, name) };
  return act({ do: "clear-reservation", name, why, metadata });
}

/** The label form of older versions becomes the annotation; failing that, the next pass tries again. */
function migrate({ claim, facts }: ClaimObserved, name: string): BindingStep | undefined {
  const isLabelled = claim.metadata.labels?.[annotationKeys.sandboxName] !== undefined;
  if (!isLabelled || facts.tried.has("migrate-reservation") || facts.failure !== undefined) return undefined;
  const { uid } = claim.metadata;
  const metadata = {
    uid,
    labels: { [annotationKeys.sandboxName]: null },
    annotations: { [annotationKeys.sandboxName]: name },
  };
  return act({ do: "migrate-reservation", metadata });
}

/** A transfer of this pass came too late: a pass that has lost one member takes no other. */
function lostAdoption({ facts }: ClaimObserved): ClaimProblem | undefined {
  const { cleared, launched } = facts;
  if (cleared === undefined || launched?.name !== cleared.name) return undefined;
  const fate = cleared.why === "deleted" ? "deleted before adoption completed" : cleared.why;
  return adoptionConflict(`sandbox "${cleared.name}" was ${fate}`);
}

/** The Sandbox a cold start of this claim makes, or has made without the answer reaching us. */
function findCold(observed: ClaimObserved): BindingStep | undefined {
  const { claim, known, facts } = observed;
  const name = coldSandboxName(claim);
  const sandbox = known.sandbox(name);
  const isCreateRefused = facts.tried.has("create-sandbox");
  if (sandbox === undefined) {
    if (isCreateRefused) return createPending();
    // A warm Sandbox now might be the claim's second one.
    return observed.isColdUnresolved && !facts.asked.has(name) ? act({ do: "read-sandbox", name }) : undefined;
  }
  if (isControlledBy(sandbox, sandboxClaims, claim)) return finishBound(observed, sandbox);
  const message = `sandbox "${name}" is not controlled by claim "${claim.metadata.name}". Please use a different claim name or delete the sandbox manually`;
  return claimProblem("ReconcilerError", message, { retry: true });
}

function createPending(): ClaimProblem {
  const message = "Sandbox already created; waiting for cache to converge";
  return claimProblem("SandboxCreatePending", message, { retry: true });
}

/** What a Sandbox that is the claim's still lacks; each is written once in a pass. */
function finishBound(observed: ClaimObserved, sandbox: Sandbox): BindingStep {
  const { claim, facts } = observed;
  if (facts.failure !== undefined) return { kind: "bound", sandbox };
  const { name, uid, labels } = sandbox.metadata;
  if (labels?.[labelKeys.launchType] === undefined && !facts.tried.has("label-launch-type")) {
    const isWarm = reservationOf(claim) === name || name !== coldSandboxName(claim);
    const patch = { metadata: { uid, labels: { [labelKeys.launchType]: isWarm ? "warm" : "cold" } } };
    return act({ do: "label-launch-type", name, patch });
  }
  const lookup = templateOf(observed, sandbox);
  const template = templateIn(lookup);
  if (template === undefined && claim.spec.additionalPodMetadata !== undefined) {
    return { kind: "bound", sandbox, problem: templateUnknown(claim, lookup) };
  }
  const patch = planBoundMetadata(sandbox, claim, template);
  if (isProblem(patch)) return { kind: "bound", sandbox, problem: patch };
  if (patch === undefined || facts.tried.has("sync-metadata")) return { kind: "bound", sandbox };
  return act({ do: "sync-metadata", name, patch });
}

function templateUnknown(claim: SandboxClaim, lookup: TemplateLookup | undefined): ClaimProblem {
  const prefix = "failed to get template for metadata propagation: ";
  if (lookup?.kind === "missing") return claimProblem("TemplateNotFound", `${prefix}${lookup.message}`);
  return claimProblem("WarmPoolNotFound", `${prefix}SandboxWarmPool "${claim.spec.warmPoolRef.name}" not found`);
}

/** The template a Sandbox was made from; a claim that is pointed elsewhere later does not change it. */
function templateOf({ pool, known }: ClaimObserved, sandbox: Sandbox): TemplateLookup | undefined {
  const name = sandbox.metadata.annotations?.[annotationKeys.templateRef] ?? pool?.spec.sandboxTemplateRef.name;
  return name === undefined ? undefined : known.template(name);
}

/** The template itself, ready or not: metadata does not depend on its policy. */
export function templateIn(lookup: TemplateLookup | undefined): SandboxTemplate | undefined {
  return lookup === undefined || lookup.kind === "missing" ? undefined : lookup.template;
}
