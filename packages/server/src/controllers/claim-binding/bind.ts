import type { Sandbox, SandboxClaim, SandboxWarmPool } from "@agent-sandbox/api";
import { isControlledBy, isReasonOf, keyOf, normalizeCreator, sandboxClaims, sandboxes } from "@agent-sandbox/api";
import { isAnswered } from "../answered.ts";
import type { ColdReason } from "../controller-metrics.ts";
import { lookUpTemplate, type TemplateLookup } from "../template-lookup.ts";
import { isReady } from "../warm-pool-population/plan.ts";
import { Staleness } from "../warm-pool-population/staleness.ts";
import { createdByLabel, launchTypeLabel, sandboxNameKey, templateRefAnnotation } from "../well-known.ts";
import {
  adoptionConflict,
  clearReservation,
  completeAdoption,
  patchClaim,
  readSandbox,
  refreshClaim,
  reserve,
} from "./adopt.ts";
import type { ClaimContext, ClaimView } from "./claim-context.ts";
import { ClaimProblem } from "./claim-problem.ts";
import { coldSandbox, coldSandboxName } from "./cold-sandbox.ts";
import { judge, reservationOf } from "./judgement.ts";
import { mergePodMetadata, validatePodMetadata } from "./pod-metadata-policy.ts";
import { planStart } from "./start.ts";

/** A claim that waits for a member: no status is written, an event or the deadline brings it back. */
export interface Pending {
  readonly pendingMs: number;
}

/** Finds the claim's Sandbox, or takes one, or makes one; strictly in this order. */
export async function bind(context: ClaimContext, view: ClaimView, signal: AbortSignal): Promise<Sandbox | Pending> {
  const { claim } = view;
  validatePodMetadata(claim.spec.additionalPodMetadata, context.config.allowedLabelDomains);
  const bound = await findBound(context, view, signal);
  if (bound !== undefined) return bound;
  const pool = context.extensions.pools.get(`${claim.metadata.namespace ?? ""}/${claim.spec.warmPoolRef.name}`);
  const judged = { bound: boundName(claim), reservation: reservationOf(claim) };
  const reserved = await finishReservation(context, view, pool, signal);
  if (reserved !== undefined) return reserved;
  assertSameBinding(view.claim, judged);
  const cold = await findCold(context, view, signal);
  if (cold !== undefined) return cold;
  return start(context, view, pool, signal);
}

function boundName(claim: SandboxClaim): string {
  return claim.status?.sandbox?.name ?? "";
}

/** Clearing a void reservation may have brought a newer claim to light, with a binding that nobody judged yet. */
function assertSameBinding(claim: SandboxClaim, judged: { bound: string; reservation: string | undefined }): void {
  const reservation = reservationOf(claim);
  const known = reservation === undefined || reservation === judged.reservation;
  if (!known || boundName(claim) !== judged.bound) throw adoptionConflict("the claim was changed meanwhile");
}

/** What the status names, if it is still the claim's; the server decides where the cache says otherwise. */
async function findBound(context: ClaimContext, view: ClaimView, signal: AbortSignal): Promise<Sandbox | undefined> {
  const name = view.claim.status?.sandbox?.name;
  if (name === undefined || name === "") return undefined;
  const namespace = view.claim.metadata.namespace ?? "";
  const cached = context.caches.sandboxes.get(`${namespace}/${name}`);
  if (cached !== undefined && isControlledBy(cached, sandboxClaims, view.claim))
    return withLaunchType(context, view.claim, cached, signal);
  const found = await readSandbox(context, { metadata: { name, namespace } }, signal);
  return found !== undefined && isControlledBy(found, sandboxClaims, view.claim) ? found : undefined;
}

async function finishReservation(
  context: ClaimContext,
  view: ClaimView,
  pool: SandboxWarmPool | undefined,
  signal: AbortSignal,
): Promise<Sandbox | undefined> {
  const name = reservationOf(view.claim);
  if (name === undefined) return undefined;
  const namespace = view.claim.metadata.namespace ?? "";
  const cached = context.caches.sandboxes.get(`${namespace}/${name}`);
  const sandbox = cached ?? (await readSandbox(context, { metadata: { name, namespace } }, signal));
  if (sandbox === undefined) {
    await clearReservation(context, view, name, "deleted", signal);
    return undefined;
  }
  switch (judge(sandbox, view.claim, pool)) {
    case "ours":
      await migrateReservation(context, view, name, signal);
      return withLaunchType(context, view.claim, sandbox, signal);
    case "takeable": {
      const template = templateOf(context, view.claim, sandbox, pool);
      const adopted = await completeAdoption(context, view, sandbox, { pool, template: found(template) }, signal);
      // Whoever made the reservation ended before it could tell of the adoption.
      if (pool !== undefined) view.announce = () => announce(context, view.claim, adopted, pool, "warm");
      await migrateReservation(context, view, name, signal);
      return adopted;
    }
    case "lost-to-claim":
    case "not-takeable": {
      // Only the server may say that a committed reservation is void: the cache may be behind our own transfer.
      const fresh = await readSandbox(context, sandbox, signal);
      if (fresh !== undefined && judge(fresh, view.claim, pool) === "ours") return fresh;
      await clearReservation(context, view, name, "lost to another owner", signal);
      return undefined;
    }
    case "foreign":
      return undefined;
  }
}

/** The label form of older versions becomes the annotation; failing that, the next pass tries again. */
async function migrateReservation(
  context: ClaimContext,
  view: ClaimView,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  if (view.claim.metadata.labels?.[sandboxNameKey] === undefined) return;
  const { uid } = view.claim.metadata;
  const metadata = { uid, labels: { [sandboxNameKey]: null }, annotations: { [sandboxNameKey]: name } };
  await patchClaim(context, view, metadata, signal).catch((error: unknown) => {
    if (signal.aborted) throw signal.reason;
    context.logger.warn({ err: error, key: keyOf(view.claim) }, "reservation label not migrated");
  });
}

/** The Sandbox a cold start of this claim would make. */
async function findCold(context: ClaimContext, view: ClaimView, signal: AbortSignal): Promise<Sandbox | undefined> {
  const name = coldSandboxName(view.claim);
  const namespace = view.claim.metadata.namespace ?? "";
  let sandbox = context.caches.sandboxes.get(`${namespace}/${name}`);
  if (sandbox === undefined && context.unresolved.has(keyOf(view.claim))) {
    // It was asked for and nobody said what became of it: a warm one now might be a second one.
    sandbox = await readSandbox(context, { metadata: { name, namespace } }, signal);
  }
  context.unresolved.delete(keyOf(view.claim));
  if (sandbox === undefined) return undefined;
  if (isControlledBy(sandbox, sandboxClaims, view.claim)) return withLaunchType(context, view.claim, sandbox, signal);
  throw notControlled(name, view.claim);
}

function notControlled(name: string, claim: SandboxClaim): ClaimProblem {
  const message = `sandbox "${name}" is not controlled by claim "${claim.metadata.name}". Please use a different claim name or delete the sandbox manually`;
  return new ClaimProblem("ReconcilerError", message, { retry: true });
}

/** Sandboxes from before the label existed get it once. */
async function withLaunchType(
  context: ClaimContext,
  claim: SandboxClaim,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<Sandbox> {
  if (sandbox.metadata.labels?.[launchTypeLabel] !== undefined) return sandbox;
  const { name, namespace = "", uid } = sandbox.metadata;
  const warm = reservationOf(claim) === name || name !== coldSandboxName(claim);
  const body = { metadata: { uid, labels: { [launchTypeLabel]: warm ? "warm" : "cold" } } };
  const patched = await context.client.patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal });
  return context.caches.sandboxes.wrote(patched);
}

/** The template a Sandbox was made from; a claim that is pointed elsewhere later does not change it. */
export function templateOf(
  { extensions }: ClaimContext,
  claim: SandboxClaim,
  sandbox: Sandbox | undefined,
  pool: SandboxWarmPool | undefined,
): TemplateLookup | undefined {
  const name = sandbox?.metadata.annotations?.[templateRefAnnotation] ?? pool?.spec.sandboxTemplateRef.name;
  return name === undefined ? undefined : lookUpTemplate(extensions, claim.metadata.namespace ?? "", name);
}

/** The template itself, ready or not: metadata does not depend on its policy. */
export function found(lookup: TemplateLookup | undefined) {
  return lookup === undefined || lookup.kind === "missing" ? undefined : lookup.template;
}

async function start(
  context: ClaimContext,
  view: ClaimView,
  pool: SandboxWarmPool | undefined,
  signal: AbortSignal,
): Promise<Sandbox | Pending> {
  const { claim } = view;
  if (pool === undefined || pool.metadata.deletionTimestamp !== undefined) {
    throw new ClaimProblem("WarmPoolNotFound", `SandboxWarmPool "${claim.spec.warmPoolRef.name}" not found`);
  }
  const key = keyOf(claim);
  const lookup = lookUpTemplate(context.extensions, claim.metadata.namespace ?? "", pool.spec.sandboxTemplateRef.name);
  // Found before anything is reserved: a reservation that cannot be completed would poison the member for others.
  const template = found(lookup);
  if (template !== undefined) mergePodMetadata(template.spec.podTemplate.metadata, claim.spec.additionalPodMetadata);
  for (;;) {
    const nowMs = context.clock.nowMs();
    const firstSeenMs = context.times.seen(key, claim.metadata.uid ?? "", nowMs, false).firstSeenMs;
    const offer = context.warm.offer(pool.metadata.uid ?? "", nowMs);
    const labels = { namespace: claim.metadata.namespace ?? "", warmpool_name: pool.metadata.name };
    context.metrics.poolQueue.set(labels, offer.ready + offer.networked);
    const step = planStart({ claim, offer, firstSeenMs, nowMs });
    if (step.do === "wait") {
      context.warm.wait(pool.metadata.uid ?? "", key);
      if (step.problem !== undefined) throw step.problem;
      return { pendingMs: step.untilMs - nowMs };
    }
    if (step.do === "create") return createCold(context, view, { pool, lookup, reason: step.reason }, signal);
    const adopted = await adopt(context, view, { pool, lookup, readiness: step.readiness }, signal);
    if (adopted !== undefined) return adopted;
  }
}

/** Leases, checks, reserves and takes one member; undefined when that member was none after all. */
async function adopt(
  context: ClaimContext,
  view: ClaimView,
  { pool, lookup, readiness }: { pool: SandboxWarmPool; lookup: TemplateLookup; readiness: "ready" | "networked" },
  signal: AbortSignal,
): Promise<Sandbox | undefined> {
  const { warm, caches, clock } = context;
  const key = keyOf(view.claim);
  const candidateKey = warm.lease(pool.metadata.uid ?? "", key, readiness, clock.nowMs());
  if (candidateKey === undefined) return undefined;
  const candidate = caches.sandboxes.get(candidateKey);
  if (
    candidate === undefined ||
    judge(candidate, view.claim, pool) !== "takeable" ||
    isOutdated(candidate, pool, lookup)
  ) {
    warm.discard(candidateKey);
    return undefined;
  }
  try {
    await reserve(context, view, candidate.metadata.name, signal);
  } catch (error) {
    warm.release(candidateKey, key);
    throw error;
  }
  // From here on the lease stays: whatever happens, the next pass finishes this very adoption.
  const adopted = await completeAdoption(context, view, candidate, { pool, template: found(lookup) }, signal);
  warm.discard(candidateKey);
  view.announce = () => announce(context, view.claim, adopted, pool, "warm");
  return adopted;
}

/** Under Recreate the pool is about to delete a stale member. */
function isOutdated(sandbox: Sandbox, pool: SandboxWarmPool, lookup: TemplateLookup): boolean {
  const template = found(lookup);
  if (pool.spec.updateStrategy?.type !== "Recreate" || template === undefined) return false;
  return new Staleness(template).isStale(sandbox);
}

async function createCold(
  context: ClaimContext,
  view: ClaimView,
  { pool, lookup, reason }: { pool: SandboxWarmPool; lookup: TemplateLookup; reason: ColdReason },
  signal: AbortSignal,
): Promise<Sandbox> {
  if (lookup.kind === "missing") throw new ClaimProblem("TemplateNotFound", lookup.message);
  if (lookup.kind === "not-ready") throw new ClaimProblem("TemplateNotReady", lookup.message);
  // A claim that cannot be served is refused before anything is written; the Sandbox is made from the claim as written.
  coldSandbox(view.claim, lookup.template);
  await proveCurrent(context, view, signal);
  const wanted = coldSandbox(view.claim, lookup.template);
  const namespace = view.claim.metadata.namespace ?? "";
  const key = keyOf(view.claim);
  try {
    context.unresolved.add(key);
    const created = context.caches.sandboxes.wrote(await context.client.create(sandboxes, wanted, { signal }));
    context.unresolved.delete(key);
    context.metrics.claimColdStarts.inc({ namespace, warmpool_name: pool.metadata.name, reason });
    view.announce = () => announce(context, view.claim, created, pool, "cold");
    return created;
  } catch (error) {
    if (isAnswered(error)) context.unresolved.delete(key);
    if (!isReasonOf(error, "AlreadyExists")) throw createError(error, signal);
  }
  const existing = await readSandbox(context, wanted, signal);
  if (existing !== undefined && isControlledBy(existing, sandboxClaims, view.claim)) return existing;
  if (existing !== undefined) throw notControlled(wanted.metadata.name, view.claim);
  throw createPending();
}

function createError(error: unknown, signal: AbortSignal): Error {
  if (signal.aborted) throw signal.reason;
  const text = error instanceof Error ? error.message : String(error);
  return new ClaimProblem("ReconcilerError", `sandbox create error: ${text}`, { retry: true, cause: error });
}

/**
 * A cold start must not happen behind a reservation that this view does not show yet. The observability write does
 * that on the way, being made against the claim's version; without it the claim is read.
 */
async function proveCurrent(context: ClaimContext, view: ClaimView, signal: AbortSignal): Promise<void> {
  const judged = bindingMark(view.claim);
  for (;;) {
    const { uid, resourceVersion } = view.claim.metadata;
    if (Object.keys(view.pending).length > 0) {
      try {
        await patchClaim(context, view, { uid, resourceVersion, annotations: view.pending }, signal);
        view.pending = {};
        return;
      } catch (error) {
        if (!isReasonOf(error, "Conflict")) throw error;
      }
    }
    await refreshClaim(context, view, signal);
    if (bindingMark(view.claim) !== judged) throw createPending();
    if (Object.keys(view.pending).length === 0) return;
  }
}

/** What the claim says it has; this pass found all of it void. */
function bindingMark(claim: SandboxClaim): string {
  return `${boundName(claim)}/${reservationOf(claim) ?? ""}`;
}

function createPending(): ClaimProblem {
  const message = "Sandbox already created; waiting for cache to converge";
  return new ClaimProblem("SandboxCreatePending", message, { retry: true });
}

function announce(
  context: ClaimContext,
  claim: SandboxClaim,
  sandbox: Sandbox,
  pool: SandboxWarmPool,
  launchType: "warm" | "cold",
): void {
  const { events, metrics, config } = context;
  metrics.claimCreations.inc({
    namespace: claim.metadata.namespace ?? "",
    sandbox_template: sandbox.metadata.annotations?.[templateRefAnnotation] ?? "__unknown__",
    launch_type: launchType,
    warmpool_name: pool.metadata.name,
    pod_condition: launchType === "warm" && isReady(sandbox) ? "ready" : "not_ready",
    created_by: normalizeCreator(claim.metadata.labels?.[createdByLabel]),
  });
  if (!config.claimEvents) return;
  const { name } = sandbox.metadata;
  const note =
    launchType === "warm"
      ? { reason: "SandboxAdopted", action: "Adoption", note: `Adopted warm pool Sandbox "${name}"` }
      : { reason: "SandboxProvisioned", action: "Provisioning", note: `Created Sandbox "${name}"` };
  events.record({ ...claim, kind: "SandboxClaim" }, { type: "Normal", ...note });
}
