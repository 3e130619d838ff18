import type { Condition, Sandbox, SandboxClaim, SandboxClaimStatus } from "@agent-sandbox/api";
import { findCondition, upsertCondition } from "@agent-sandbox/api";
import { statusPatch } from "../status-patch.ts";
import type { ClaimProblem, ClaimReason } from "./claim-problem.ts";

/** What the status of a claim depends on. */
export interface ClaimStatusInput {
  readonly claim: SandboxClaim;
  readonly sandbox: Sandbox | undefined;
  /** Why the pass could not serve the claim. */
  readonly problem: ClaimProblem | undefined;
  readonly expired: boolean;
  readonly nowMs: number;
}

type Ready = Pick<Condition, "status" | "reason" | "message"> & { readonly lastTransitionTime?: string };

/** Reasons whose message is the condition's as it stands. */
const ownReasons: ReadonlySet<ClaimReason> = new Set<ClaimReason>([
  "TemplateNotFound",
  "WarmPoolNotFound",
  "TemplateNotReady",
  "AdoptionConflict",
  "SandboxCreatePending",
  "InvalidMetadata",
  "InvalidConfiguration",
  "EnvVarsInjectionRejected",
  "VolumeClaimTemplatesError",
  "WarmSandboxPending",
  "BindTimeout",
]);

/** The whole status; a problem never loses the binding, because the next pass would start a second Sandbox. */
export function planClaimStatus(input: ClaimStatusInput): SandboxClaimStatus {
  const { claim, sandbox, problem, nowMs } = input;
  const conditions = withFinished(input, readyConditions(claim, readyOf(input), nowMs));
  const { sandbox: _bound, ...rest } = claim.status ?? {};
  return { ...rest, ...bindingOf(claim, sandbox, problem), conditions: sortedByType(conditions) };
}

function readyConditions(claim: SandboxClaim, ready: Ready, nowMs: number): readonly Condition[] {
  const observedGeneration = claim.metadata.generation ?? 0;
  return upsertCondition(claim.status?.conditions ?? [], { type: "Ready", ...ready, observedGeneration }, nowMs);
}

/** The rows of the Ready condition in order: the first that matches decides. */
function readyOf(input: ClaimStatusInput): Ready {
  const { problem, expired, sandbox } = input;
  if (problem !== undefined) return problemReady(problem, expired);
  if (expired) return no("ClaimExpired", "Claim expired. Sandbox cleanup initiated.");
  if (sandbox === undefined) return no("SandboxMissing", "Sandbox does not exist");
  const own = findCondition(sandbox.status?.conditions, "Ready");
  if (own?.reason === "SandboxExpired") {
    return no("SandboxExpired", "Underlying Sandbox resource has expired independently of the Claim.");
  }
  // A Sandbox on its way out may still say Ready.
  if (sandbox.metadata.deletionTimestamp !== undefined) return no("SandboxNotReady", "Sandbox is terminating");
  if (own === undefined) return no("SandboxNotReady", "Sandbox is not ready");
  const { status, reason, message } = own;
  return { status, reason, message, lastTransitionTime: notBefore(own.lastTransitionTime, input.claim) };
}

/** A warm Sandbox was Ready before its claim was created; the claim's condition begins with the claim. */
function notBefore(time: string, claim: SandboxClaim): string {
  const born = claim.metadata.creationTimestamp;
  return born !== undefined && Date.parse(time) < Date.parse(born) ? born : time;
}

function problemReady({ reason, message }: ClaimProblem, expired: boolean): Ready {
  if (expired) {
    const skipped = reason === "SandboxNotOwned" ? "; deletion skipped." : "";
    return no("ClaimExpired", `Claim expired. ${message}${skipped}`);
  }
  return ownReasons.has(reason) ? no(reason, message) : no("ReconcilerError", `Error seen: ${message}`);
}

function no(reason: string, message: string): Ready {
  return { status: "False", reason, message };
}

/** Mirrors the Sandbox's Finished; an expired claim keeps what it had. */
function withFinished({ sandbox, expired }: ClaimStatusInput, conditions: readonly Condition[]): readonly Condition[] {
  if (sandbox === undefined && expired) return conditions;
  const others = conditions.filter((condition) => condition.type !== "Finished");
  const finished = findCondition(sandbox?.status?.conditions, "Finished");
  return finished === undefined ? others : [...others, finished];
}

function bindingOf(
  claim: SandboxClaim,
  sandbox: Sandbox | undefined,
  problem: ClaimProblem | undefined,
): Pick<SandboxClaimStatus, "sandbox"> {
  if (sandbox !== undefined) {
    const podIPs = sandbox.status?.podIPs ?? [];
    return { sandbox: { name: sandbox.metadata.name, ...(podIPs.length > 0 ? { podIPs: [...podIPs] } : {}) } };
  }
  const lost = problem === undefined || problem.reason === "SandboxNotOwned";
  if (!lost && claim.status?.sandbox !== undefined) return { sandbox: claim.status.sandbox };
  return {};
}

function sortedByType(conditions: readonly Condition[]): Condition[] {
  return [...conditions].sort((a, b) => (a.type < b.type ? -1 : 1));
}

/** The merge patch of the status, or undefined when nothing changed; the order of conditions never counts. */
export function planClaimStatusPatch(
  claim: SandboxClaim,
  status: SandboxClaimStatus,
): Record<string, unknown> | undefined {
  const before = { ...claim.status, conditions: sortedByType(claim.status?.conditions ?? []) };
  const patch = statusPatch(before, status);
  if (patch?.["sandbox"] === undefined || patch["sandbox"] === null) return patch;
  // Within an object a merge patch keeps what it does not name: addresses that went must be named.
  const podIPs = status.sandbox?.podIPs ?? null;
  return { ...patch, sandbox: { name: status.sandbox?.name ?? null, podIPs } };
}

/** Status of a claim whose time is up: announced, nothing deleted yet. */
export function planClaimExpired(
  claim: SandboxClaim,
  status: SandboxClaimStatus | undefined,
  nowMs: number,
): SandboxClaimStatus {
  const ready = no("ClaimExpired", "Claim expired. Sandbox cleanup initiated.");
  const conditions = readyConditions({ ...claim, ...(status === undefined ? {} : { status }) }, ready, nowMs);
  return { ...status, conditions: sortedByType(conditions) };
}
