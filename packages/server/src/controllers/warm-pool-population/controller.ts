import type { Pod, Sandbox, SandboxWarmPool, SandboxWarmPoolStatus } from "@agent-sandbox/api";
import { controllerOf, ignore, isControlledBy, keyOf, nameHash, refersTo, sandboxWarmPools } from "@agent-sandbox/api";
import {
  type Controller,
  defineController,
  initialListPriority,
  type Outcome,
  type WorkQueue,
} from "@agent-sandbox/kube";
import { byPoolLabel, byTemplate, scoped } from "../caches.ts";
import type { ExtensionContext } from "../extension-context.ts";
import { errorText } from "../sandbox-lifecycle/error-text.ts";
import { trackedPodName } from "../sandbox-pod/plan.ts";
import { statusPatch } from "../status-patch.ts";
import { lookUpTemplate, type TemplateLookup } from "../template-lookup.ts";
import { applyCreations, applyDeletions, applyRepair, resolveCreations } from "./apply.ts";
import { memberFactory } from "./member.ts";
import { desiredReplicas, isReady, type PoolObserved, type PoolPlan, planPool } from "./plan.ts";
import { poolConditions } from "./pool-conditions.ts";
import { openPoolMemory, type PoolMemory } from "./pool-memory.ts";
import { tellAfterMs } from "./status-pace.ts";

/** Keeps every pool at its number of unclaimed members. Keys are pools. */
export function warmPoolController(context: ExtensionContext): Controller {
  const { clock, random, telemetry, caches, extensions, config } = context;
  const reconciler = new WarmPoolReconciler(context);
  const isHere = (key: string): boolean => {
    const pool = extensions.pools.get(key);
    return pool !== undefined && pool.metadata.deletionTimestamp === undefined;
  };
  return defineController({
    name: "sandboxwarmpool",
    clock,
    random,
    telemetry,
    workers: config.warmPoolWorkers,
    caches: caches.informers,
    observe: (queue) => watchPools(context, queue),
    span: (key) => (isHere(key) ? { name: "ReconcileSandboxWarmPool" } : undefined),
    reconcile: (key, signal) => reconciler.reconcile(key, signal),
  });
}

class WarmPoolReconciler {
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
      return { kind: "done" };
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
    if (errors.length > 0) throw errors[0];
    const known = waits.filter((wait) => wait !== undefined);
    if (known.length === 0) return { kind: "done" };
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

  /** A pool that is gone has no size: its series would stay for ever. */
  #forget(key: string): void {
    const { metrics } = this.#context;
    const [namespace = "", name = ""] = key.split("/");
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

  /** Writes what is new in the status, or answers in how many milliseconds it will be written. */
  async #report(
    pool: SandboxWarmPool,
    status: SandboxWarmPoolStatus,
    memory: PoolMemory,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const patch = statusPatch(pool.status, status);
    if (patch === undefined) return undefined;
    const { client, extensions, clock } = this.#context;
    const waitMs = tellAfterMs(pool.status, status, clock.nowMs() - memory.toldMs);
    if (waitMs > 0) return waitMs;
    memory.toldMs = clock.nowMs();
    const { name, namespace = "", uid } = pool.metadata;
    const body = { metadata: { uid }, status: patch };
    const patched = await client
      .patch(sandboxWarmPools, { namespace, name }, { type: "merge", body }, { subresource: "status", signal })
      .catch(ignore("NotFound"));
    if (patched !== undefined) extensions.pools.wrote(patched);
    return undefined;
  }
}

/** Status is written also when something failed, and says what. */
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

/** Pools warmed together do not wake together; never before the deadline. */
function graceWait(plan: PoolPlan, random: () => number): number | undefined {
  return plan.graceMs === undefined ? undefined : plan.graceMs * (1 + random() / 2);
}

/** Collects what a pass needs from the caches. */
export function observePool(
  { caches, config, clock }: ExtensionContext,
  pool: SandboxWarmPool,
  lookup: TemplateLookup,
  memory: PoolMemory,
): PoolObserved {
  const members = caches.sandboxes.byIndex(byPoolLabel, scoped(pool, nameHash(pool.metadata.name)));
  const nowMs = clock.nowMs();
  const active = members.filter(
    (member) => member.metadata.deletionTimestamp === undefined && isControlledBy(member, sandboxWarmPools, pool),
  );
  const waiting = active.filter((member) => !isReady(member));
  const unschedulable = waiting.filter((member) =>
    isUnschedulable(caches.pods.get(scoped(member, trackedPodName(member)))),
  );
  return {
    pool,
    template: lookup.kind === "found" ? lookup.template : undefined,
    templateState: lookup.kind === "found" ? { kind: "resolved" } : { kind: lookup.kind, message: lookup.message },
    members,
    unschedulable: new Set(unschedulable.map((member) => member.metadata.name)),
    unresolved: memory.unresolved.size,
    holdMs: memory.hold.remainingMs(active.length, desiredReplicas(pool), nowMs),
    readinessGraceMs: config.readinessGraceMs,
    unschedulableRecheckMs: config.unschedulableRecheckMs,
    batchMax: config.poolBatchMax,
    nowMs,
  };
}

function isUnschedulable(pod: Pod | undefined): boolean {
  if (pod === undefined || pod.metadata.deletionTimestamp !== undefined) return false;
  return (pod.status?.conditions ?? []).some(
    (entry) => entry.type === "PodScheduled" && entry.status === "False" && entry.reason === "Unschedulable",
  );
}

/** Turns every relevant change into the key of a pool. */
function watchPools({ caches, extensions }: ExtensionContext, queue: WorkQueue<string>): void {
  extensions.pools.addHandler({
    onAdd: (pool, { initial }) => queue.add(keyOf(pool), initial ? { priority: initialListPriority } : {}),
    onUpdate: (_old, pool) => queue.add(keyOf(pool)),
    onDelete: (last) => queue.add(keyOf(last)),
  });
  const touchOwner = (sandbox: Sandbox): void => {
    const owner = controllerOf(sandbox);
    if (refersTo(owner, sandboxWarmPools)) queue.add(scoped(sandbox, owner?.name ?? ""));
  };
  caches.sandboxes.addHandler({
    onAdd: touchOwner,
    // The old owner is the pool that just lost a member to a claim.
    onUpdate: (old, sandbox) => {
      touchOwner(old);
      touchOwner(sandbox);
    },
    onDelete: touchOwner,
  });
  const touchUsers = (namespace: string, templateName: string): void => {
    for (const pool of extensions.pools.byIndex(byTemplate, `${namespace}/${templateName}`)) queue.add(keyOf(pool));
  };
  const touchTemplate = (template: { metadata: { namespace?: string; name: string } }): void =>
    touchUsers(template.metadata.namespace ?? "", template.metadata.name);
  extensions.templates.addHandler({
    onAdd: touchTemplate,
    onUpdate: (_old, template) => touchTemplate(template),
    onDelete: touchTemplate,
  });
  // Members are created only under a policy, so its arrival is news for the pool.
  extensions.networkPolicies.addHandler({
    onAdd: ({ metadata }) => touchUsers(metadata.namespace ?? "", metadata.name.replace(/-network-policy$/, "")),
  });
}
