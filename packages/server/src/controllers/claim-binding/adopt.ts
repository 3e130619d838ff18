import type { Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool } from "@agent-sandbox/api";
import { ApiError, ignore, isReasonOf, keyOf, sandboxClaims, sandboxes } from "@agent-sandbox/api";
import { sandboxNameKey } from "../well-known.ts";
import type { ClaimContext, ClaimView } from "./claim-context.ts";
import { ClaimProblem } from "./claim-problem.ts";
import { judge, planClearReservation, reservationOf } from "./judgement.ts";
import { planTransfer } from "./transfer.ts";

/** Tries against a fresh version before a write that keeps losing is left to the next pass. */
const conflictTriesMax = 5;

/** The pool and template an adoption goes by. */
export interface Source {
  readonly pool: SandboxWarmPool | undefined;
  readonly template: SandboxTemplate | undefined;
}

/** First write: the claim names its Sandbox, against the claim's version. Resolves when the reservation holds. */
export async function reserve(
  context: ClaimContext,
  view: ClaimView,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const { uid, resourceVersion } = view.claim.metadata;
    const annotations = { ...view.pending, [sandboxNameKey]: name };
    try {
      await patchClaim(context, view, { uid, resourceVersion, annotations }, signal);
      view.pending = {};
      return;
    } catch (error) {
      if (!isReasonOf(error, "Conflict")) throw error;
      context.metrics.adoptionConflicts.inc({ namespace: view.claim.metadata.namespace ?? "" });
      if (attempt >= conflictTriesMax)
        throw adoptionConflict(`reserving sandbox "${name}" (conflicting concurrent write)`);
    }
    await refreshClaim(context, view, signal);
    const present = reservationOf(view.claim);
    if (present === name) return;
    if (present !== undefined) throw adoptionConflict(`sandbox "${present}" is reserved already`);
  }
}

/** Replaces the view by the server's; a claim that is another by now, or gone, ends the pass. */
export async function refreshClaim(context: ClaimContext, view: ClaimView, signal: AbortSignal): Promise<void> {
  const { name, namespace = "", uid } = view.claim.metadata;
  const fresh = await context.client.get(sandboxClaims, { namespace, name }, { signal }).catch(ignore("NotFound"));
  if (fresh === undefined || fresh.metadata.uid !== uid || fresh.metadata.deletionTimestamp !== undefined) {
    if (fresh === undefined) context.extensions.claims.gone(view.claim);
    else context.extensions.claims.wrote(fresh);
    throw adoptionConflict("the claim was deleted or replaced");
  }
  view.claim = context.extensions.claims.wrote(fresh);
}

/** Merge-patches the claim's metadata and takes over the answer. */
export async function patchClaim(
  { client, extensions }: ClaimContext,
  view: ClaimView,
  metadata: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
): Promise<void> {
  const { name, namespace = "" } = view.claim.metadata;
  const body = { metadata };
  const patched = await client.patch(sandboxClaims, { namespace, name }, { type: "merge", body }, { signal });
  view.claim = extensions.claims.wrote(patched);
}

/**
 * Second write: the Sandbox changes hands, against its version. A lost race is settled by what the server says; once
 * the reservation is committed no other candidate is tried in the same pass.
 */
export async function completeAdoption(
  context: ClaimContext,
  view: ClaimView,
  candidate: Sandbox,
  source: Source,
  signal: AbortSignal,
): Promise<Sandbox> {
  let sandbox = candidate;
  for (let attempt = 1; ; attempt++) {
    try {
      return await transfer(context, view.claim, sandbox, source, signal);
    } catch (error) {
      if (!isReasonOf(error, "Conflict") && !isReasonOf(error, "NotFound")) throw error;
      context.metrics.adoptionConflicts.inc({ namespace: view.claim.metadata.namespace ?? "" });
    }
    const fresh = await readSandbox(context, sandbox, signal);
    const { name } = sandbox.metadata;
    if (fresh === undefined) {
      await clearReservation(context, view, name, "deleted", signal);
      throw adoptionConflict(`sandbox "${name}" was deleted before adoption completed`);
    }
    const judgement = judge(fresh, view.claim, source.pool);
    if (judgement === "ours") return fresh;
    if (judgement !== "takeable") {
      await clearReservation(context, view, name, "lost to another owner", signal);
      throw adoptionConflict(`sandbox "${name}" was lost to another owner`);
    }
    if (attempt >= conflictTriesMax) throw adoptionConflict(`sandbox "${name}" (conflicting concurrent write)`);
    sandbox = fresh;
  }
}

async function transfer(
  { client, caches, clock }: ClaimContext,
  claim: SandboxClaim,
  sandbox: Sandbox,
  { template }: Source,
  signal: AbortSignal,
): Promise<Sandbox> {
  const { name, namespace = "" } = sandbox.metadata;
  const body = planTransfer(sandbox, claim, { template, nowMs: clock.nowMs() });
  return caches.sandboxes.wrote(
    await client.patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal }),
  );
}

/** The Sandbox as the server has it; undefined when it is gone or another has its name. */
export async function readSandbox(
  { client, caches }: ClaimContext,
  known: { readonly metadata: { readonly name: string; readonly namespace?: string } },
  signal: AbortSignal,
): Promise<Sandbox | undefined> {
  const { name, namespace = "" } = known.metadata;
  const found = await client.get(sandboxes, { namespace, name }, { signal }).catch(ignore("NotFound"));
  if (found !== undefined) return caches.sandboxes.wrote(found);
  const cached = caches.sandboxes.get(`${namespace}/${name}`);
  if (cached !== undefined) caches.sandboxes.gone(cached);
  return undefined;
}

/** Takes the reservation of exactly this Sandbox off a fresh claim; internal error text stays out of the condition. */
export async function clearReservation(
  context: ClaimContext,
  view: ClaimView,
  name: string,
  why: string,
  signal: AbortSignal,
): Promise<void> {
  context.warm.release(`${view.claim.metadata.namespace ?? ""}/${name}`, keyOf(view.claim));
  try {
    for (let attempt = 1; ; attempt++) {
      const changes = planClearReservation(view.claim, name);
      if (changes === undefined) return;
      const { uid, resourceVersion } = view.claim.metadata;
      try {
        return await patchClaim(context, view, { uid, resourceVersion, ...changes }, signal);
      } catch (error) {
        if (isReasonOf(error, "NotFound")) return;
        if (!isReasonOf(error, "Conflict") || attempt >= conflictTriesMax) throw error;
      }
      await refreshClaim(context, view, signal);
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (error instanceof ClaimProblem) throw error;
    context.logger.warn({ err: error, key: keyOf(view.claim), sandbox: name }, "reservation not cleared");
    throw adoptionConflict(`sandbox "${name}" ${why} and reference cleanup failed`, error);
  }
}

/** A race was lost; the next pass starts from what is true by then. */
export function adoptionConflict(detail: string, cause?: unknown): ClaimProblem {
  const message = `adoption write conflict: ${detail}; the next pass retries from a converged view`;
  return new ClaimProblem("AdoptionConflict", message, {
    retry: true,
    ...(cause instanceof ApiError ? { cause } : {}),
  });
}
