import type { SandboxWarmPool, SandboxWarmPoolStatus } from "@agent-sandbox/api";
import { ignore, keyOf, parseKey, sandboxWarmPools } from "@agent-sandbox/api";
import { done, type Outcome } from "@agent-sandbox/kube";
import type { ExtensionContext } from "../extension-context.ts";
import { errorText } from "../sandbox-lifecycle/error-text.ts";
import { statusPatch } from "../status-patch.ts";
import { lookUpTemplate, type TemplateLookup } from "../template-lookup.ts";
import { applyCreations, applyDeletions, applyRepair, resolveCreations } from "./apply.ts";
import { memberFactory } from "./member.ts";
import { observePool } from "./observe.ts";
import { desiredReplicas, type PoolObserved, type PoolPlan, planPool } from "./plan.ts";
import { poolConditions } from "./pool-conditions.ts";
import { openPoolMemory, type PoolMemory } from "./pool-memory.ts";
import { statusDelayMs } from "./status-pace.ts";

/** Passes over pools: observe, plan, apply, report. */
export class PoolReconciler {
  readonly #context: ExtensionContext;
  /** Bound: one entry per pool; dropped with it. */
  readonly #memories = new Map<string, PoolMemory>();

  constructor(context: ExtensionContext) {
    this.#context = context;
  }

  /** One pass over one pool. */
  readonly reconcile = async (key: string, signal: AbortSignal): Promise<Outcome> => {
    const pool = this.#context.extensions.pools.get(key);
    if (pool === undefined || pool.metadata.deletionTimestamp !== undefined) {
      this.#memories.delete(key);
      this.#forget(key);
      return done;
    }
    return this.#pass(pool, signal);
  };

  async #pass(pool: SandboxWarmPool, signal: AbortSignal): Promise<Outcome> {
    const memory = this.#memoryOf(pool);
    await resolveCreations(this.#context, pool, memory, signal);
    const lookup = lookUpTemplate(
      this.#context.extensions,
      pool.metadata.namespace ?? "",
      pool.spec.sandboxTemplateRef.name,
    );
    const observed = observePool(this.#context, pool, lookup, memory);
    const plan = planPool(observed);
    const errors: unknown[] = [];
    for (const repair of plan.repairs) {
      await applyRepair(this.#context, pool, repair, signal).catch((error: unknown) => void errors.push(error));
    }
    errors.push(...(await applyDeletions(this.#context, plan.deletions, signal)).errors);
    const waits = [plan.wakeMs, graceWait(plan, this.#context.random)];
    const created = await this.#create(pool, lookup, { count: plan.creations, memory }, signal);
    errors.push(...created.errors);
    waits.push(created.waitMs);
    signal.throwIfAborted();
    this.#announce(pool, plan, memory);
    this.#measure(pool, plan);
    waits.push(await this.#report(pool, withFailure(pool, plan, observed, errors), memory, signal));
    if (errors.length > 0) return { kind: "failed", error: errors[0] };
    const known = waits.filter((wait) => wait !== undefined);
    if (known.length === 0) return done;
    return { kind: "requeue-after", afterMs: Math.max(1, Math.min(...known)) };
  }

  #memoryOf(pool: SandboxWarmPool): PoolMemory {
    const key = keyOf(pool);
    const present = this.#memories.get(key);
    if (present !== undefined && present.uid === pool.metadata.uid) return present;
    const memory = openPoolMemory(pool.metadata.uid ?? "", this.#context.config, this.#context.clock.nowMs());
    this.#memories.set(key, memory);
    return memory;
  }

  async #create(
    pool: SandboxWarmPool,
    lookup: TemplateLookup,
    { count, memory }: { count: number; memory: PoolMemory },
    signal: AbortSignal,
  ): Promise<{ errors: readonly unknown[]; waitMs?: number }> {
    if (count <= 0 || lookup.kind !== "found") return { errors: [] };
    const { clock, config } = this.#context;
    const { granted, waitMs } = memory.rate.take(count, clock.nowMs());
    if (granted === 0) return { errors: [], ...(waitMs === undefined ? {} : { waitMs }) };
    const build = memberFactory(pool, lookup.template, config.poolEviction);
    const { succeeded, errors } = await applyCreations(this.#context, pool, { count: granted, build, memory }, signal);
    memory.hold.created(succeeded);
    return { errors };
  }

  #announce(pool: SandboxWarmPool, plan: PoolPlan, memory: PoolMemory): void {
    const { events } = this.#context;
    const held = plan.held > 0;
    if (held === memory.notProgressing) return;
    memory.notProgressing = held;
    const note = held
      ? ({ type: "Warning", reason: "WarmPoolNotProgressing", note: plan.heldNote ?? "" } as const)
      : ({ type: "Normal", reason: "WarmPoolProgressing", note: "Warm pool is progressing again" } as const);
    events.record({ ...pool, kind: "SandboxWarmPool" }, { ...note, action: "Reconciling" });
  }

  /** Removes the series of a pool that is gone: a gauge keeps its last value until then. */
  #forget(key: string): void {
    const { metrics } = this.#context;
    const { namespace = "", name } = parseKey(key);
    const labels = { namespace, warmpool_name: name };
    const { poolDesired, poolSize, poolReady, poolHeld, poolStale, poolQueue } = metrics;
    for (const gauge of [poolDesired, poolSize, poolReady, poolHeld, poolStale, poolQueue]) gauge.remove(labels);
  }

  #measure(pool: SandboxWarmPool, plan: PoolPlan): void {
    const { metrics } = this.#context;
    const labels = { namespace: pool.metadata.namespace ?? "", warmpool_name: pool.metadata.name };
    metrics.poolDesired.set(labels, desiredReplicas(pool));
    metrics.poolSize.set(labels, plan.status.replicas ?? 0);
    metrics.poolReady.set(labels, plan.status.readyReplicas ?? 0);
    metrics.poolHeld.set(labels, plan.held);
    metrics.poolStale.set(labels, plan.stale);
  }

  /** Writes the status if it changed; resolves with the wait in milliseconds where the write is put off. */
  async #report(
    pool: SandboxWarmPool,
    status: SandboxWarmPoolStatus,
    memory: PoolMemory,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const patch = statusPatch(pool.status, status);
    if (patch === undefined) return undefined;
    const { client, extensions, clock } = this.#context;
    const waitMs = statusDelayMs(pool.status, status, clock.nowMs() - memory.statusWrittenMs);
    if (waitMs > 0) return waitMs;
    memory.statusWrittenMs = clock.nowMs();
    const { name, namespace = "", uid } = pool.metadata;
    const body = { metadata: { uid }, status: patch };
    const patched = await client
      .patch(sandboxWarmPools, { namespace, name }, { type: "merge", body }, { subresource: "status", signal })
      .catch(ignore("NotFound"));
    // Until the watch brings its deletion, the cache hides it: no other pass may try to write it.
    if (patched === undefined) extensions.pools.gone(pool);
    else extensions.pools.wrote(patched);
    return undefined;
  }
}

/** The status of a pass in which something failed: its conditions say what. */
function withFailure(
  pool: SandboxWarmPool,
  plan: PoolPlan,
  observed: PoolObserved,
  errors: readonly unknown[],
): SandboxWarmPoolStatus {
  if (errors.length === 0) return plan.status;
  const { conditions: _conditions, ...status } = plan.status;
  const { templateState: state, nowMs } = observed;
  const failure = errorText(errors[0]);
  return {
    ...plan.status,
    conditions: poolConditions({
      pool,
      status,
      state,
      held: plan.held,
      desired: desiredReplicas(pool),
      failure,
      nowMs,
    }),
  };
}

/** Between one and one and a half of the wait, so that pools that were filled together do not all wake in one moment. */
function graceWait(plan: PoolPlan, random: () => number): number | undefined {
  return plan.graceMs === undefined ? undefined : plan.graceMs * (1 + random() / 2);
}
