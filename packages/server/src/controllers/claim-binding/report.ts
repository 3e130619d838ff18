import type { Sandbox, SandboxClaim, SandboxClaimStatus } from "@agent-sandbox/api";
import { annotationKeys, isReasonOf, keyOf, labelKeys, normalizeCreator, sandboxClaims } from "@agent-sandbox/api";
import { compareVersions, done, type Outcome } from "@agent-sandbox/kube";
import type { ClaimProblem } from "../claim-status/claim-problem.ts";
import { recordLatency } from "../claim-status/latency.ts";
import { planClaimStatusPatch } from "../claim-status/plan.ts";
import type { EventNote } from "../event-recorder.ts";
import { isReady } from "../warm-pool-population/member-state.ts";
import type { ClaimContext } from "./claim-context.ts";
import { launchNote } from "./events.ts";
import type { ClaimObserved } from "./observe.ts";
import type { ClaimPlan, NextLook } from "./plan.ts";

/** A write that conflicts with ours has an event, which brings the claim back; this long after, it comes back without one. */
const conflictLookMs = 1_000;

/** What became of the status. */
type StatusAnswer =
  /** Written, or it said so already, or the claim is gone. */
  | { readonly kind: "settled" }
  /** The claim was written since it was observed. */
  | { readonly kind: "conflict" }
  | { readonly kind: "failed"; readonly error: unknown };

/** Writes what the pass came to, tells people and metrics, and says when to look again. */
export async function reportClaim(
  context: ClaimContext,
  observed: ClaimObserved,
  plan: ClaimPlan,
  signal: AbortSignal,
): Promise<Outcome> {
  const { claim } = observed;
  // Before anything is awaited: a member that becomes free from here on wakes the claim.
  if (plan.waitFor !== undefined) context.warm.wait(plan.waitFor, keyOf(claim));
  if (plan.sandbox !== undefined) noteJudged(context, claim, plan.sandbox);
  const answer = await reportStatus(context, claim, plan, signal);
  // After the status: a client waits for that one, and for none of these.
  announceLaunch(context, observed, plan.sandbox);
  if (answer.kind === "settled") record(context, claim, plan.notes ?? []);
  return outcomeOf(plan.next, answer);
}

/** The claim is judged by this version of its Sandbox; a version that the watch has not shown yet may never come. */
function noteJudged({ caches, ahead, unresolved }: ClaimContext, claim: SandboxClaim, sandbox: Sandbox): void {
  unresolved.delete(keyOf(claim));
  const key = keyOf(sandbox);
  const shown = caches.sandboxes.informer.get(key)?.metadata.resourceVersion;
  if (shown === undefined || compareVersions(shown, sandbox.metadata.resourceVersion) < 0) ahead.add(key);
}

async function reportStatus(
  context: ClaimContext,
  claim: SandboxClaim,
  { status, sandbox }: ClaimPlan,
  signal: AbortSignal,
): Promise<StatusAnswer> {
  if (status === undefined) return { kind: "settled" };
  const { times, metrics, clock } = context;
  const known = times.seen(keyOf(claim), claim.metadata.uid ?? "", clock.nowMs(), false);
  // Judged before the write: its own event may arrive before its answer.
  const { measured } = known;
  const answer = await writeStatus(context, claim, status, signal);
  if (sandbox !== undefined && answer.kind === "settled") {
    recordLatency(metrics, { claim, sandbox, status, times: known, measured, nowMs: clock.nowMs() });
  }
  return answer;
}

/** One merge patch against the version of the claim that was observed, if there is anything to change. */
async function writeStatus(
  { client, extensions }: ClaimContext,
  claim: SandboxClaim,
  status: SandboxClaimStatus,
  signal: AbortSignal,
): Promise<StatusAnswer> {
  const patch = planClaimStatusPatch(claim, status);
  if (patch === undefined) return { kind: "settled" };
  const { name, namespace = "", uid, resourceVersion } = claim.metadata;
  const body = { metadata: { uid, resourceVersion }, status: patch };
  try {
    const options = { subresource: "status", signal };
    extensions.claims.wrote(await client.patch(sandboxClaims, { namespace, name }, { type: "merge", body }, options));
    return { kind: "settled" };
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (isReasonOf(error, "Conflict")) return { kind: "conflict" };
    if (!isReasonOf(error, "NotFound")) return { kind: "failed", error };
    // Until the watch brings its deletion, the cache hides it: no other pass may try to write it.
    extensions.claims.gone(claim);
    return { kind: "settled" };
  }
}

/** Counts and tells that the claim has come to its Sandbox, in the pass that brought it there. */
function announceLaunch(
  context: ClaimContext,
  { claim, pool, facts }: ClaimObserved,
  sandbox: Sandbox | undefined,
): void {
  const { launched } = facts;
  if (launched === undefined || pool === undefined || sandbox?.metadata.name !== launched.name) return;
  const { launchType } = launched;
  context.metrics.claimCreations.inc({
    namespace: claim.metadata.namespace ?? "",
    sandbox_template: sandbox.metadata.annotations?.[annotationKeys.templateRef] ?? "__unknown__",
    launch_type: launchType,
    warmpool_name: pool.metadata.name,
    pod_condition: launchType === "warm" && isReady(sandbox) ? "ready" : "not_ready",
    created_by: normalizeCreator(claim.metadata.labels?.[labelKeys.createdBy]),
  });
  record(context, claim, [launchNote(launchType, sandbox.metadata.name)]);
}

function record({ events, config }: ClaimContext, claim: SandboxClaim, notes: readonly EventNote[]): void {
  if (!config.claimEvents) return;
  for (const note of notes) events.record({ ...claim, kind: "SandboxClaim" }, note);
}

function outcomeOf(next: NextLook, answer: StatusAnswer): Outcome {
  if (answer.kind === "failed") return { kind: "failed", error: answer.error };
  const isConflict = answer.kind === "conflict";
  switch (next.kind) {
    case "none":
      return isConflict ? { kind: "requeue-after", afterMs: conflictLookMs } : done;
    case "after":
      // What was to follow the status would go by a status that was not written.
      return { kind: "requeue-after", afterMs: isConflict ? conflictLookMs : next.afterMs };
    case "retry": {
      const withinMs = isConflict ? Math.min(conflictLookMs, next.withinMs ?? conflictLookMs) : next.withinMs;
      return { kind: "failed", error: asError(next.problem), ...(withinMs === undefined ? {} : { withinMs }) };
    }
  }
}

/** For the runner, which logs it. A request that failed is passed on as it is: the server may have said when to come back. */
function asError({ reason, message, cause }: ClaimProblem): unknown {
  if (reason === "ReconcilerError" && cause instanceof Error && cause.message === message) return cause;
  return new Error(message, { cause });
}
