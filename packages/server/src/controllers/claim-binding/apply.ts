import type { Sandbox, SandboxClaim } from "@agent-sandbox/api";
import {
  formatTimestamp,
  ignore,
  isReasonOf,
  keyOf,
  namespacedKey,
  networkPolicies,
  sandboxClaims,
  sandboxes,
  uidOf,
} from "@agent-sandbox/api";
import { isAnswered } from "../answered.ts";
import type { ActionOutcome, ClaimAction, ClaimPatch } from "./actions.ts";
import type { ClaimContext } from "./claim-context.ts";
import { coldSandboxName } from "./cold-sandbox.ts";
import { deletionNote } from "./events.ts";
import { learn, type PassFacts } from "./facts.ts";
import { reservationOf } from "./judgement.ts";
import type { SandboxPatch } from "./transfer.ts";

const done: ActionOutcome = { kind: "done" };

/** Carries actions out in order, up to the first that did not go as planned; resolves with what the pass knows then. */
export async function applyActions(
  context: ClaimContext,
  claim: SandboxClaim,
  { actions, facts }: { readonly actions: readonly ClaimAction[]; readonly facts: PassFacts },
  signal: AbortSignal,
): Promise<PassFacts> {
  let learnt = facts;
  for (const action of actions) {
    const outcome = await applyAction(context, claim, action, signal);
    learnt = learn(learnt, action, outcome);
    if (outcome.kind !== "done") return learnt;
  }
  return learnt;
}

/** Carries one action out. Rejects only when the pass is cancelled: every answer of the API is an outcome. */
async function applyAction(
  context: ClaimContext,
  claim: SandboxClaim,
  action: ClaimAction,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  try {
    return await carryOut(context, claim, action, signal);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    return { kind: "failed", error };
  }
}

function carryOut(
  context: ClaimContext,
  claim: SandboxClaim,
  action: ClaimAction,
  signal: AbortSignal,
): Promise<ActionOutcome> | ActionOutcome {
  switch (action.do) {
    case "remove-legacy-policy":
      return removeLegacyPolicy(context, claim, action, signal);
    case "read-claim":
      return readClaim(context, claim, signal).then(() => done);
    case "read-sandbox":
      return readAsked(context, claim, action.name, signal);
    case "drop-members":
      for (const key of action.keys) context.warm.remove(key);
      return done;
    case "mark-claim":
      return patchClaim(context, claim, action.metadata, signal);
    case "reserve":
      return reserve(context, claim, action, signal);
    case "transfer":
      return transfer(context, claim, action, signal);
    case "clear-reservation":
      return clearReservation(context, claim, action, signal);
    case "migrate-reservation":
      return migrateReservation(context, claim, action, signal);
    case "label-launch-type":
    case "sync-metadata":
      return patchSandbox(context, claim, action, signal).then(() => done);
    case "create-sandbox":
      return createSandbox(context, claim, action, signal);
    case "delete-sandbox":
      return deleteSandbox(context, action.sandbox, signal);
    case "delete-claim":
      return deleteClaim(context, claim, action, signal);
  }
}

type Action<K extends ClaimAction["do"]> = Extract<ClaimAction, { readonly do: K }>;

/** The lease is taken before anything is awaited, so no other claim can have been offered the member since the plan. */
async function reserve(
  context: ClaimContext,
  claim: SandboxClaim,
  { key, poolUid, metadata }: Action<"reserve">,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  const { warm, metrics, extensions, clock } = context;
  const namespace = claim.metadata.namespace ?? "";
  if (!warm.lease(poolUid, key, keyOf(claim), clock.nowMs())) return { kind: "member-leased" };
  try {
    const outcome = await patchClaim(context, claim, metadata, signal);
    if (outcome.kind !== "done") metrics.adoptionConflicts.inc({ namespace });
    return outcome;
  } finally {
    // Once the reservation holds, the lease stays: whatever happens then, the next pass finishes this very adoption.
    const newest = extensions.claims.get(keyOf(claim));
    const reserved = newest === undefined ? undefined : reservationOf(newest);
    if (`${namespace}/${reserved ?? ""}` !== key) warm.release(key, keyOf(claim));
  }
}

async function transfer(
  context: ClaimContext,
  claim: SandboxClaim,
  action: Action<"transfer">,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  const { warm, metrics } = context;
  const namespace = claim.metadata.namespace ?? "";
  try {
    await patchSandbox(context, claim, action, signal);
  } catch (error) {
    if (!isReasonOf(error, "Conflict") && !isReasonOf(error, "NotFound")) throw error;
    metrics.adoptionConflicts.inc({ namespace });
    await readSandbox(context, { namespace, name: action.name }, signal);
    return { kind: "sandbox-changed" };
  }
  warm.remove(namespacedKey(namespace, action.name));
  return done;
}

async function clearReservation(
  context: ClaimContext,
  claim: SandboxClaim,
  { name, metadata }: Action<"clear-reservation">,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  const key = keyOf(claim);
  context.warm.release(namespacedKey(claim.metadata.namespace, name), key);
  try {
    return await patchClaim(context, claim, metadata, signal);
  } catch (error) {
    if (!signal.aborted) context.logger.warn({ err: error, key, sandbox: name }, "reservation not cleared");
    throw error;
  }
}

/** A label that stays is read like the annotation, so a failure is logged and no more. */
async function migrateReservation(
  context: ClaimContext,
  claim: SandboxClaim,
  { metadata }: Action<"migrate-reservation">,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  try {
    await patchClaim(context, claim, metadata, signal);
  } catch (error) {
    if (signal.aborted) throw error;
    context.logger.warn({ err: error, key: keyOf(claim) }, "reservation label not migrated");
  }
  return done;
}

async function createSandbox(
  context: ClaimContext,
  claim: SandboxClaim,
  { sandbox, poolName, reason }: Action<"create-sandbox">,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  const { client, caches, metrics, unresolved } = context;
  const { name, namespace = "" } = sandbox.metadata;
  unresolved.add(keyOf(claim));
  try {
    caches.sandboxes.wrote(await client.create(sandboxes, sandbox, { signal }));
  } catch (error) {
    if (isAnswered(error)) unresolved.delete(keyOf(claim));
    if (!isReasonOf(error, "AlreadyExists")) throw error;
    await readSandbox(context, { namespace, name }, signal);
    return { kind: "sandbox-changed" };
  }
  unresolved.delete(keyOf(claim));
  metrics.claimColdStarts.inc({ namespace, warmpool_name: poolName, reason });
  return done;
}

async function deleteSandbox(
  { client, caches, clock }: ClaimContext,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  const { name, namespace = "" } = sandbox.metadata;
  await client.delete(sandboxes, { namespace, name }, { uid: uidOf(sandbox), signal }).catch(ignore("NotFound"));
  caches.sandboxes.deleted(sandbox, formatTimestamp(clock.nowMs()));
  return done;
}

async function deleteClaim(
  { client, events, config }: ClaimContext,
  claim: SandboxClaim,
  { policy }: Action<"delete-claim">,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  if (config.claimEvents) events.record({ ...claim, kind: "SandboxClaim" }, deletionNote(policy));
  const { name, namespace = "" } = claim.metadata;
  const propagation = policy === "DeleteForeground" ? { propagationPolicy: "Foreground" as const } : {};
  await client
    .delete(sandboxClaims, { namespace, name }, { uid: uidOf(claim), ...propagation, signal })
    .catch(ignore("NotFound"));
  return done;
}

/** A policy that stays does no harm to the claim, so a failure is logged and no more. */
async function removeLegacyPolicy(
  { extensions, client, logger }: ClaimContext,
  claim: SandboxClaim,
  { policy }: Action<"remove-legacy-policy">,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  const { name, namespace = "" } = policy.metadata;
  try {
    await client.delete(networkPolicies, { namespace, name }, { uid: uidOf(policy), signal });
    extensions.networkPolicies.gone(policy);
  } catch (error) {
    if (signal.aborted) throw error;
    logger.warn({ err: error, key: keyOf(claim) }, "legacy network policy not removed");
  }
  return done;
}

/** Merge-patches the claim's metadata. A refusal for its version, or because it is gone, is answered by reading it. */
async function patchClaim(
  context: ClaimContext,
  claim: SandboxClaim,
  metadata: ClaimPatch,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  const { client, extensions } = context;
  const { name, namespace = "" } = claim.metadata;
  try {
    const body = { metadata };
    extensions.claims.wrote(
      await client.patch(sandboxClaims, { namespace, name }, { type: "merge", body }, { signal }),
    );
    return done;
  } catch (error) {
    if (!isReasonOf(error, "Conflict") && !isReasonOf(error, "NotFound")) throw error;
  }
  await readClaim(context, claim, signal);
  return { kind: "claim-changed" };
}

async function readClaim(
  { client, extensions }: ClaimContext,
  claim: SandboxClaim,
  signal: AbortSignal,
): Promise<void> {
  const { name, namespace = "" } = claim.metadata;
  const fresh = await client.get(sandboxClaims, { namespace, name }, { signal }).catch(ignore("NotFound"));
  if (fresh === undefined) extensions.claims.gone(claim);
  else extensions.claims.wrote(fresh);
}

async function patchSandbox(
  { client, caches }: ClaimContext,
  claim: SandboxClaim,
  { name, patch: body }: { readonly name: string; readonly patch: SandboxPatch },
  signal: AbortSignal,
): Promise<void> {
  const namespace = claim.metadata.namespace ?? "";
  caches.sandboxes.wrote(await client.patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal }));
}

/** An answer about the cold Sandbox settles a create that had none. */
async function readAsked(
  context: ClaimContext,
  claim: SandboxClaim,
  name: string,
  signal: AbortSignal,
): Promise<ActionOutcome> {
  await readSandbox(context, { namespace: claim.metadata.namespace ?? "", name }, signal);
  if (name === coldSandboxName(claim)) context.unresolved.delete(keyOf(claim));
  return done;
}

/** Asks the server for a Sandbox and tells the cache, which may be behind or show what is gone. */
async function readSandbox(
  { client, caches }: ClaimContext,
  { namespace, name }: { readonly namespace: string; readonly name: string },
  signal: AbortSignal,
): Promise<void> {
  const found = await client.get(sandboxes, { namespace, name }, { signal }).catch(ignore("NotFound"));
  if (found !== undefined) return void caches.sandboxes.wrote(found);
  const cached = caches.sandboxes.get(namespacedKey(namespace, name));
  if (cached !== undefined) caches.sandboxes.gone(cached);
}
