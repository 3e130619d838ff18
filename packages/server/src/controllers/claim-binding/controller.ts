import type { Sandbox, SandboxClaim, SandboxClaimStatus } from "@agent-sandbox/api";
import {
  controllerOf,
  expiryOf,
  findCondition,
  formatTimestamp,
  formatTimestampMs,
  ignore,
  isConditionTrue,
  isControlledBy,
  isReasonOf,
  keyOf,
  labels,
  networkPolicies,
  normalizeCreator,
  refersTo,
  sandboxClaims,
  sandboxes,
} from "@agent-sandbox/api";
import { compareVersions, type Outcome } from "@agent-sandbox/kube";
import { recordLatency } from "../claim-status/latency.ts";
import { planClaimExpired, planClaimStatus, planClaimStatusPatch } from "../claim-status/plan.ts";
import type { ExtensionContext } from "../extension-context.ts";
import { MeteredQueue } from "../metered-queue.ts";
import { currentTraceContext, inSpan } from "../tracing.ts";
import { controllerFirstObservedAnnotation, traceContextAnnotation } from "../well-known.ts";
import { readSandbox } from "./adopt.ts";
import { bind, found, templateOf } from "./bind.ts";
import type { ClaimContext, ClaimView } from "./claim-context.ts";
import { ClaimProblem, type ClaimReason } from "./claim-problem.ts";
import { ClaimClock } from "./claim-times.ts";
import { coldSandboxName } from "./cold-sandbox.ts";
import { reservationOf } from "./judgement.ts";
import { bindDeadlineMs } from "./start.ts";
import { planBoundMetadata } from "./transfer.ts";
import { WarmQueue } from "./warm-queue.ts";

/** Longer than any event takes, shorter than anybody's patience. */
const conflictLookMs = 1_000;

/** After an expiry was announced the removal follows in a pass of its own, at once. */
const afterMarkMs = 1;

/** Serves claims: one Sandbox each, warm where a pool has one. */
export class ClaimController {
  readonly name = "sandboxclaim";
  readonly queue: MeteredQueue;
  readonly context: ClaimContext;

  constructor(context: ExtensionContext) {
    this.queue = new MeteredQueue({ ...context, name: this.name });
    const warm = new WarmQueue((claim) => this.queue.add(claim));
    this.context = { ...context, warm, times: new ClaimClock(), unresolved: new Set(), ahead: new Set() };
  }

  /** One pass over one claim. */
  readonly reconcile = async (key: string, signal: AbortSignal): Promise<Outcome> => {
    const { extensions, times, warm, unresolved } = this.context;
    const claim = extensions.claims.get(key);
    warm.unwait(key);
    if (claim === undefined) {
      times.forget(key);
      unresolved.delete(key);
      return { kind: "done" };
    }
    await this.#removeLegacyPolicy(claim, signal);
    const parent = claim.metadata.annotations?.[traceContextAnnotation];
    const attributes = { [labels.createdBy]: normalizeCreator(claim.metadata.labels?.[labels.createdBy]) };
    return inSpan<Outcome>("ReconcileSandboxClaim", { parent, attributes }, async () => {
      if (claim.metadata.deletionTimestamp !== undefined) return { kind: "done" };
      return this.#pass(claim, signal);
    });
  };

  async #pass(claim: SandboxClaim, signal: AbortSignal): Promise<Outcome> {
    const { clock } = this.context;
    const view: ClaimView = { claim, pending: this.#observability(claim) };
    if (claimExpiry(claim, claim.status, clock.nowMs()).expired) return this.#expire(view, signal);
    let sandbox: Sandbox | undefined;
    let error: unknown;
    try {
      assertInTime(claim, clock.nowMs());
      const outcome = await bind(this.context, view, signal);
      if ("pendingMs" in outcome) return this.#wakeAt(view.claim, outcome.pendingMs);
      sandbox = outcome;
      sandbox = await this.#syncMetadata(view, sandbox, signal);
    } catch (failure) {
      if (signal.aborted) throw signal.reason;
      error = failure instanceof BoundError ? failure.cause : failure;
      if (failure instanceof BoundError) sandbox = failure.sandbox;
    }
    return this.#settle(view, sandbox, error, signal);
  }

  /** Reports what a pass came to, and decides when to look again. */
  async #settle(view: ClaimView, sandbox: Sandbox | undefined, error: unknown, signal: AbortSignal): Promise<Outcome> {
    const { clock, events, config } = this.context;
    // The binding stands and only the cache is behind: nothing in the status would be truer than what is there.
    const waiting = error instanceof ClaimProblem && error.reason === "SandboxCreatePending";
    if (waiting && (view.claim.status?.sandbox?.name ?? "") !== "") throw error;
    const nowMs = clock.nowMs();
    if (sandbox !== undefined) this.#expectEvent(view.claim, sandbox);
    const status = planClaimStatus({ claim: view.claim, sandbox, error, expired: false, nowMs });
    if (claimExpiry(view.claim, status, nowMs).expired) {
      const written = await this.#report(view, planClaimExpired(view.claim, status, nowMs), undefined, signal);
      if (!written) return { kind: "done" };
      if (config.claimEvents) events.record({ ...view.claim, kind: "SandboxClaim" }, expiredEvent);
      return { kind: "requeue-after", afterMs: afterMarkMs };
    }
    const before = findCondition(view.claim.status?.conditions, "Ready")?.reason;
    try {
      if (await this.#report(view, status, sandbox, signal)) this.#warn(view.claim, before, status);
    } finally {
      view.announce?.();
    }
    if (error !== undefined && !(error instanceof ClaimProblem && !error.retry)) {
      this.#armDeadline(view.claim, status);
      throw error;
    }
    return this.#wakeAt({ ...view.claim, status }, undefined);
  }

  /** The claim is judged by this version of its Sandbox; what comes after it must bring the claim back. */
  #expectEvent(claim: SandboxClaim, sandbox: Sandbox): void {
    const { caches, ahead } = this.context;
    const key = keyOf(sandbox);
    const shown = caches.sandboxes.informer.get(key)?.metadata.resourceVersion;
    const order = shown === undefined ? -1 : compareVersions(shown, sandbox.metadata.resourceVersion);
    if (order < 0) ahead.add(key);
    // The pass went on with what it had read while the watch brought something newer.
    if (order > 0) this.queue.add(keyOf(claim));
  }

  /** Says once in an Event why a claim is not served, for those who read `kubectl describe`. */
  #warn(claim: SandboxClaim, before: string | undefined, status: SandboxClaimStatus): void {
    const { events, config } = this.context;
    const ready = findCondition(status.conditions, "Ready");
    if (!config.claimEvents || ready === undefined || ready.reason === before || !refusals.has(ready.reason)) return;
    const { reason, message: note } = ready;
    events.record({ ...claim, kind: "SandboxClaim" }, { type: "Warning", reason, action: "Binding", note });
  }

  #armDeadline(claim: SandboxClaim, status: SandboxClaimStatus): void {
    const expiry = claimExpiry(claim, status, this.context.clock.nowMs());
    if (!expiry.expired && expiry.remainingMs !== undefined) this.queue.addAfter(keyOf(claim), expiry.remainingMs);
  }

  #wakeAt(claim: SandboxClaim, pendingMs: number | undefined): Outcome {
    const nowMs = this.context.clock.nowMs();
    const expiry = claimExpiry(claim, claim.status, nowMs);
    const deadlineMs = isBound(claim) ? undefined : bindDeadlineMs(claim);
    const waits = [
      pendingMs,
      expiry.expired ? 0 : expiry.remainingMs,
      deadlineMs === undefined || deadlineMs <= nowMs ? undefined : deadlineMs - nowMs,
    ].filter((wait) => wait !== undefined);
    if (waits.length === 0) return { kind: "done" };
    return { kind: "requeue-after", afterMs: Math.max(1, Math.min(...waits)) };
  }

  /** Marks of first sight, to ride along with the first write the pass makes anyway. */
  #observability(claim: SandboxClaim): Readonly<Record<string, string>> {
    const { config, clock, times } = this.context;
    const measured = isConditionTrue(claim.status?.conditions, "Ready");
    const { firstSeenMs } = times.seen(keyOf(claim), claim.metadata.uid ?? "", clock.nowMs(), measured);
    if (!config.claimObservabilityAnnotations) return {};
    const present = claim.metadata.annotations ?? {};
    const pending: Record<string, string> = {};
    if (present[controllerFirstObservedAnnotation] === undefined) {
      pending[controllerFirstObservedAnnotation] = formatTimestampMs(firstSeenMs);
    }
    const trace = currentTraceContext();
    if (present[traceContextAnnotation] === undefined && trace !== "") pending[traceContextAnnotation] = trace;
    return pending;
  }

  /** Pushes edits of the claim's metadata to its Sandbox; a failure keeps the binding. */
  async #syncMetadata(view: ClaimView, sandbox: Sandbox, signal: AbortSignal): Promise<Sandbox> {
    const { claim } = view;
    const { extensions, client, caches } = this.context;
    const pool = extensions.pools.get(`${claim.metadata.namespace ?? ""}/${claim.spec.warmPoolRef.name}`);
    const lookup = templateOf(this.context, claim, sandbox, pool);
    if (found(lookup) === undefined && claim.spec.additionalPodMetadata !== undefined) {
      const message =
        lookup?.kind === "missing" ? lookup.message : `SandboxWarmPool "${claim.spec.warmPoolRef.name}" not found`;
      const reason = lookup?.kind === "missing" ? "TemplateNotFound" : "WarmPoolNotFound";
      throw new BoundError(
        sandbox,
        new ClaimProblem(reason, `failed to get template for metadata propagation: ${message}`),
      );
    }
    try {
      const body = planBoundMetadata(sandbox, claim, found(lookup));
      if (body === undefined) return sandbox;
      const { name, namespace = "" } = sandbox.metadata;
      return caches.sandboxes.wrote(
        await client.patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal }),
      );
    } catch (error) {
      throw new BoundError(sandbox, error);
    }
  }

  async #expire(view: ClaimView, signal: AbortSignal): Promise<Outcome> {
    const { claim } = view;
    const { clock, events, config, client } = this.context;
    if (findCondition(claim.status?.conditions, "Ready")?.reason !== "ClaimExpired") {
      const written = await this.#report(view, planClaimExpired(claim, claim.status, clock.nowMs()), undefined, signal);
      if (!written) return { kind: "done" };
      if (config.claimEvents) events.record({ ...claim, kind: "SandboxClaim" }, expiredEvent);
      return { kind: "requeue-after", afterMs: afterMarkMs };
    }
    const policy = claim.spec.lifecycle?.shutdownPolicy ?? "Retain";
    if (policy === "Retain") return this.#retain(view, signal);
    const note = {
      type: "Normal",
      reason: "ClaimExpired",
      action: "Deleting",
      note: `Deleting Claim (ShutdownPolicy=${policy})`,
    } as const;
    if (config.claimEvents) events.record({ ...claim, kind: "SandboxClaim" }, note);
    const { name, namespace = "", uid } = claim.metadata;
    const propagation = policy === "DeleteForeground" ? { propagationPolicy: "Foreground" as const } : {};
    await client
      .delete(sandboxClaims, { namespace, name }, { ...(uid === undefined ? {} : { uid }), ...propagation, signal })
      .catch(ignore("NotFound"));
    return { kind: "done" };
  }

  /** The Sandbox goes, the claim stays and says why. */
  async #retain(view: ClaimView, signal: AbortSignal): Promise<Outcome> {
    let error: unknown;
    try {
      await this.#deleteExpiredSandbox(view.claim, signal);
    } catch (failure) {
      if (signal.aborted) throw signal.reason;
      error = failure;
    }
    const nowMs = this.context.clock.nowMs();
    const status = planClaimStatus({ claim: view.claim, sandbox: undefined, error, expired: true, nowMs });
    await this.#report(view, status, undefined, signal);
    if (error !== undefined && !(error instanceof ClaimProblem)) throw error;
    return { kind: "done" };
  }

  async #deleteExpiredSandbox(claim: SandboxClaim, signal: AbortSignal): Promise<void> {
    const { client, caches, clock } = this.context;
    const namespace = claim.metadata.namespace ?? "";
    const name = claim.status?.sandbox?.name ?? reservationOf(claim) ?? coldSandboxName(claim);
    const cached = caches.sandboxes.get(`${namespace}/${name}`);
    const sandbox =
      cached !== undefined && isControlledBy(cached, sandboxClaims, claim)
        ? cached
        : await readSandbox(this.context, { metadata: { name, namespace } }, signal);
    if (sandbox === undefined || sandbox.metadata.deletionTimestamp !== undefined) return;
    if (!isControlledBy(sandbox, sandboxClaims, claim)) {
      throw new ClaimProblem("SandboxNotOwned", `sandbox "${name}" is not owned by claim "${claim.metadata.name}"`);
    }
    const { uid } = sandbox.metadata;
    await client
      .delete(sandboxes, { namespace, name }, { ...(uid === undefined ? {} : { uid }), signal })
      .catch(ignore("NotFound"));
    caches.sandboxes.deleted(sandbox, formatTimestamp(clock.nowMs()));
  }

  /** Writes the status against the claim's version; false when a newer claim made it moot, whose event brings us back. */
  async #report(
    view: ClaimView,
    status: SandboxClaimStatus,
    sandbox: Sandbox | undefined,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { client, extensions, times, metrics, clock } = this.context;
    const { claim } = view;
    const patch = planClaimStatusPatch(claim, status);
    const { name, namespace = "", uid, resourceVersion } = claim.metadata;
    const known = times.seen(keyOf(claim), uid ?? "", clock.nowMs(), false);
    // Judged before the write: its own event may arrive before its answer.
    const measured = known.measured;
    if (patch !== undefined) {
      const body = { metadata: { uid, resourceVersion }, status: patch };
      try {
        const options = { subresource: "status", signal };
        view.claim = extensions.claims.wrote(
          await client.patch(sandboxClaims, { namespace, name }, { type: "merge", body }, options),
        );
      } catch (error) {
        if (isReasonOf(error, "NotFound")) {
          // Its last event is on its way; until then nothing must be done about it again and again.
          extensions.claims.gone(claim);
          return true;
        }
        if (!isReasonOf(error, "Conflict")) throw error;
        // Whoever made our view old also made an event; should it not come, we look by ourselves.
        this.queue.addAfter(keyOf(claim), conflictLookMs);
        return false;
      }
    }
    if (sandbox !== undefined) {
      recordLatency(metrics, { claim, sandbox, status, times: known, measured, nowMs: clock.nowMs() });
    }
    return true;
  }

  /** Versions before templates had policies made one per claim; such a policy is ours to remove. */
  async #removeLegacyPolicy(claim: SandboxClaim, signal: AbortSignal): Promise<void> {
    const { extensions, client, logger } = this.context;
    const { name, namespace = "" } = claim.metadata;
    const policy = extensions.networkPolicies.get(`${namespace}/${name}-network-policy`);
    if (policy === undefined || policy.metadata.deletionTimestamp !== undefined) return;
    if (!refersTo(controllerOf(policy), sandboxClaims) || !isControlledBy(policy, sandboxClaims, claim)) return;
    const { uid } = policy.metadata;
    try {
      await client.delete(
        networkPolicies,
        { namespace, name: policy.metadata.name },
        { ...(uid === undefined ? {} : { uid }), signal },
      );
      extensions.networkPolicies.gone(policy);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      logger.warn({ err: error, key: keyOf(claim) }, "legacy network policy not removed");
    }
  }
}

/** Reasons that only a user can do something about. */
const refusals: ReadonlySet<string> = new Set<ClaimReason>([
  "TemplateNotFound",
  "WarmPoolNotFound",
  "InvalidMetadata",
  "InvalidConfiguration",
  "EnvVarsInjectionRejected",
  "VolumeClaimTemplatesError",
  "BindTimeout",
]);

const expiredEvent = {
  type: "Normal",
  reason: "ClaimExpired",
  action: "Claim Expired",
  note: "Claim expired",
} as const;

/** A failure after the Sandbox was found: the binding goes into the status all the same. */
class BoundError extends Error {
  override readonly name = "BoundError";
  readonly sandbox: Sandbox;

  constructor(sandbox: Sandbox, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.sandbox = sandbox;
  }
}

function claimExpiry(claim: SandboxClaim, status: SandboxClaimStatus | undefined, nowMs: number) {
  const { shutdownTime, ttlSecondsAfterFinished } = claim.spec.lifecycle ?? {};
  return expiryOf({ shutdownTime, ttlSecondsAfterFinished, conditions: status?.conditions }, nowMs);
}

function isBound(claim: SandboxClaim): boolean {
  return (claim.status?.sandbox?.name ?? "") !== "";
}

/** An unbound claim with a limit ends there; one with a reservation is as good as bound. */
function assertInTime(claim: SandboxClaim, nowMs: number): void {
  const deadlineMs = bindDeadlineMs(claim);
  if (deadlineMs === undefined || nowMs < deadlineMs || isBound(claim) || reservationOf(claim) !== undefined) return;
  throw new ClaimProblem("BindTimeout", `no Sandbox could be bound within ${claim.spec.bindTimeoutSeconds ?? 0} s`);
}
