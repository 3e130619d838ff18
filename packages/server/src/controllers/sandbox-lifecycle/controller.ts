import type {
  KubeObject,
  PersistentVolumeClaim,
  ReadyReason,
  Sandbox,
  SandboxSnapshot,
  SandboxStatus,
} from "@agent-sandbox/api";
import {
  annotationKeys,
  controllerOf,
  findCondition,
  isConditionTrue,
  keyOf,
  labelKeys,
  nameHash,
  namespacedKey,
  normalizeCreator,
  pendingSnapshotOf,
  refersTo,
  sandboxClaimName,
  sandboxClaims,
  sandboxes,
  sandboxSnapshots,
  sandboxWarmPools,
  snapshotState,
} from "@agent-sandbox/api";
import {
  type Controller,
  defineController,
  done,
  initialListPriority,
  type Outcome,
  type PassSpan,
  type WorkQueue,
} from "@agent-sandbox/kube";
import { byLabelHash, byNameHash, byOwner, bySnapshot, byTrackedPod, scoped } from "../caches.ts";
import type { ControllerMetrics } from "../controller-metrics.ts";
import { sandboxExpiry } from "../sandbox-expiry/plan.ts";
import { trackedPodName } from "../sandbox-pod/plan.ts";
import { isThere, snapshotNameFor } from "../sandbox-restore/plan.ts";
import { planExpiredMark, planExpiredStatus } from "../sandbox-status/plan.ts";
import { annotate, applyLive, applyTeardown, type LiveResult, writeStatus } from "./apply.ts";
import { readLive } from "./apply-children.ts";
import type { PodResult } from "./apply-pod.ts";
import type { PassMemory, SandboxContext } from "./context.ts";
import { planPodEvents, planSandboxEvents } from "./events.ts";
import { MadePods } from "./made-pods.ts";
import { type LivePlan, planSandbox, type SandboxObserved, type TeardownPlan } from "./plan.ts";
import { WriteBehind } from "./write-behind.ts";

/** After an expiry or a step into sleep was written down, what it leads to follows in a pass of its own, at once. */
const afterMarkMs = 1;

/**
 * How long a member of a pool may take to start before its status says that it starts. No claim waits for a member that is not
 * Ready, and each of these statuses costs the API server as much as a claim's write.
 */
const memberStartMs = 5_000;

/** The accepted risk that an autoscaler evicts a freshly claimed Pod; its scans are ten seconds apart or more. */
const podWriteBehindMaxMs = 1_000;

/** Turns Sandboxes into Pods, volume claims and Services, and says in their status what became of them. Keys are Sandboxes. */
export function sandboxController(context: SandboxContext): Controller {
  const { clock, random, telemetry, caches, config } = context;
  const reconciler = new SandboxReconciler(context);
  return defineController({
    name: "sandbox",
    clock,
    random,
    telemetry,
    workers: config.sandboxWorkers,
    caches: caches.informers,
    observe: (queue) => watchSandboxes(context, queue),
    span: (key) => sandboxSpan(caches.sandboxes.get(key)),
    reconcile: (key, signal) => reconciler.reconcile(key, signal),
  });
}

function sandboxSpan(sandbox: Sandbox | undefined): PassSpan | undefined {
  if (sandbox === undefined) return undefined;
  const creator = sandbox.metadata.labels?.[labelKeys.createdBy];
  return {
    name: "ReconcileSandbox",
    parent: sandbox.metadata.annotations?.[annotationKeys.traceContext],
    attributes: {
      "sandbox.name": sandbox.metadata.name,
      "sandbox.namespace": sandbox.metadata.namespace ?? "",
      ...(creator === undefined ? {} : { [labelKeys.createdBy]: normalizeCreator(creator) }),
    },
  };
}

class SandboxReconciler {
  readonly #context: SandboxContext;
  /** The same with a client whose requests go first. */
  readonly #urgentContext: SandboxContext;
  readonly #memory: PassMemory;
  readonly #memberStarts = new WriteBehind(memberStartMs);
  /** The reference's CRD drops `status.podUID`; sending it again with every pass would be a write for nothing. */
  #isNamingDropped = false;

  constructor(context: SandboxContext) {
    this.#context = context;
    this.#urgentContext = { ...context, client: context.client.at("urgent") };
    const writeBehind = new WriteBehind(Math.min(context.config.writeBehindMs, podWriteBehindMaxMs));
    this.#memory = { writeBehind, made: new MadePods() };
  }

  /** One pass over one key. */
  async reconcile(key: string, signal: AbortSignal): Promise<Outcome> {
    const sandbox = this.#context.caches.sandboxes.get(key);
    if (sandbox === undefined) {
      this.#memory.writeBehind.clear(key);
      this.#memory.made.clear(key);
      this.#memberStarts.clear(key);
      return done;
    }
    const snapshot = await observeSnapshot(this.#contextFor(sandbox), sandbox, signal);
    const observed = { ...observeSandbox(this.#context, sandbox, this.#memory.made), snapshot };
    const plan = planSandbox(observed);
    switch (plan.kind) {
      case "idle":
        this.#memory.writeBehind.clear(keyOf(sandbox));
        return done;
      case "mark-expired":
        await this.#report(sandbox, plan.status, signal);
        this.#context.metrics.expiries.inc({ namespace: sandbox.metadata.namespace ?? "" });
        return { kind: "requeue-after", afterMs: afterMarkMs };
      case "stamp":
        await annotate(this.#contextFor(sandbox), sandbox, plan.annotations, signal);
        return { kind: "requeue-after", afterMs: afterMarkMs };
      case "announce-sleep":
      case "note-saved":
      case "note-restore":
        return this.#mark(sandbox, plan.status, signal);
      case "teardown":
        return this.#teardown(sandbox, plan, signal);
      case "live":
        return this.#live(observed, plan, signal);
    }
  }

  /** A step into sleep, or of a start from a snapshot, that the next pass relies on. */
  async #mark(sandbox: Sandbox, status: SandboxStatus, signal: AbortSignal): Promise<Outcome> {
    await writeStatus(this.#contextFor(sandbox), sandbox, status, signal, "unchanged");
    const written = this.#context.caches.sandboxes.get(keyOf(sandbox));
    const dropped = (["sleep", "restoredFrom", "restart"] as const).find(
      (field) => status[field] !== undefined && written !== undefined && written.status?.[field] === undefined,
    );
    if (dropped === undefined) return { kind: "requeue-after", afterMs: afterMarkMs };
    return { kind: "failed", error: new Error(`the installed CRD of Sandboxes drops status.${dropped}; apply ours`) };
  }

  /** What a claim waits for goes before the refill of a pool: its Sandbox's Pod and status until the Sandbox is Ready. */
  #contextFor(sandbox: Sandbox): SandboxContext {
    const isAwaited =
      refersTo(controllerOf(sandbox), sandboxClaims) && !isConditionTrue(sandbox.status?.conditions, "Ready");
    return isAwaited ? this.#urgentContext : this.#context;
  }

  async #teardown(sandbox: Sandbox, plan: TeardownPlan, signal: AbortSignal): Promise<Outcome> {
    this.#memory.writeBehind.clear(keyOf(sandbox));
    const { deleted, errors } = await applyTeardown(this.#contextFor(sandbox), sandbox, plan, signal);
    if (deleted) return done;
    if (errors.length === 0)
      await this.#report(sandbox, planExpiredStatus(sandbox, this.#context.clock.nowMs()), signal);
    const error = joined(errors);
    return error === undefined ? done : { kind: "failed", error };
  }

  async #live(observed: SandboxObserved, plan: LivePlan, signal: AbortSignal): Promise<Outcome> {
    const { sandbox } = observed;
    const { clock } = this.#context;
    const result = await applyLive(this.#contextFor(sandbox), observed, plan, this.#memory, signal);
    this.#tell(sandbox, plan, result);
    const nowMs = clock.nowMs();
    const expiry = sandboxExpiry(sandbox, nowMs, result.status.conditions);
    const status = expiry.expired
      ? planExpiredMark({ ...sandbox, status: result.status }, clock.nowMs())
      : result.status;
    const errors = [...result.errors];
    const untoldMs = this.#untoldMs(sandbox, status, errors);
    await this.#report(sandbox, untoldMs === 0 ? status : namingOnly(sandbox, status), signal).catch(
      (error: unknown) => {
        if (signal.aborted) throw signal.reason;
        errors.push(error instanceof Error ? error : new Error(String(error)));
      },
    );
    if (expiry.expired) {
      this.#context.metrics.expiries.inc({ namespace: sandbox.metadata.namespace ?? "" });
      return { kind: "requeue-after", afterMs: afterMarkMs };
    }
    const wakeMs = earliest([
      expiry.remainingMs === undefined ? undefined : nowMs + expiry.remainingMs,
      plan.mode.changesAtMs,
      plan.pod.recovery.kind === "wait" ? plan.pod.recovery.untilMs : undefined,
      result.deferredMs === undefined ? undefined : clock.nowMs() + result.deferredMs,
      untoldMs === 0 ? undefined : clock.nowMs() + untoldMs,
    ]);
    const afterMs = wakeMs === undefined ? undefined : Math.max(1, wakeMs - clock.nowMs());
    const error = joined(errors);
    // A deadline holds also while passes fail: the retry wait may be longer.
    if (error !== undefined) return { kind: "failed", error, ...(afterMs === undefined ? {} : { withinMs: afterMs }) };
    return afterMs === undefined ? done : { kind: "requeue-after", afterMs };
  }

  /** How long the status of a member that starts may still wait: 0 means that it is written now. */
  #untoldMs(sandbox: Sandbox, status: SandboxStatus, errors: readonly Error[]): number {
    const key = keyOf(sandbox);
    if (errors.length === 0 && isStartingMember(sandbox, status)) {
      return this.#memberStarts.remainingMs(key, this.#context.clock.nowMs());
    }
    this.#memberStarts.clear(key);
    return 0;
  }

  /** Events of the Pod's creation, and the count of what was not ours to use. */
  #tell(sandbox: Sandbox, plan: LivePlan, { pod }: LiveResult): void {
    const { events, metrics } = this.#context;
    const failure = plan.pod.action?.do === "create-pod" ? pod.error?.message : undefined;
    const attempt = {
      ...(pod.created === true && pod.pod !== undefined ? { created: pod.pod.metadata.name } : {}),
      ...(failure === undefined ? {} : { failure }),
    };
    for (const note of planPodEvents(sandbox, attempt)) events.record({ ...sandbox, kind: "Sandbox" }, note);
    const namespace = sandbox.metadata.namespace ?? "";
    for (const step of refusedSteps(plan, pod)) metrics.refusals.inc({ namespace, step });
  }

  async #report(sandbox: Sandbox, status: SandboxStatus, signal: AbortSignal): Promise<void> {
    const { events, metrics, clock } = this.#context;
    const { podUID, ...rest } = status;
    if (!(await writeStatus(this.#contextFor(sandbox), sandbox, this.#isNamingDropped ? rest : status, signal))) return;
    const written = this.#context.caches.sandboxes.get(keyOf(sandbox));
    if (podUID !== undefined && written?.metadata.uid === sandbox.metadata.uid) {
      this.#isNamingDropped = written?.status?.podUID === undefined;
    }
    for (const note of planSandboxEvents(sandbox, status)) events.record({ ...sandbox, kind: "Sandbox" }, note);
    countTransitions(metrics, sandbox, status, clock.nowMs());
  }
}

/** Reasons of a member that is on its way. */
const startingReasons: readonly string[] = ["DependenciesNotReady", "SandboxRestoring"] satisfies ReadyReason[];

/** A member of a pool that was not Ready when its status was last told, and still is on its way there. */
function isStartingMember(sandbox: Sandbox, after: SandboxStatus): boolean {
  if (!refersTo(controllerOf(sandbox), sandboxWarmPools)) return false;
  const reason = (status: SandboxStatus | undefined): string | undefined =>
    findCondition(status?.conditions, "Ready")?.reason;
  const isUnschedulable = findCondition(after.conditions, "PodScheduled")?.status === "False";
  const before = reason(sandbox.status) ?? "DependenciesNotReady";
  const isStarting = (each = ""): boolean => startingReasons.includes(each);
  return isStarting(before) && isStarting(reason(after)) && !isUnschedulable;
}

/** A member's Pod has no right to anything before it is named, and so would never start: that much is written at once. */
function namingOnly({ status }: Sandbox, { podUID }: SandboxStatus): SandboxStatus {
  return { ...status, ...(podUID === undefined ? {} : { podUID }) };
}

/**
 * The snapshot that a Sandbox starts from, before its first start. The cache is enough to wait; that a snapshot is ready or gone is taken from the server,
 * because a name may stand for another one by now.
 */
async function observeSnapshot(
  context: SandboxContext,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<SandboxSnapshot | undefined> {
  const name = snapshotNameFor(sandbox);
  if (name === undefined) return undefined;
  const { namespace = "" } = sandbox.metadata;
  const { snapshots } = context.caches;
  const cached = snapshots.get(namespacedKey(namespace, name));
  if (isThere(cached)) {
    const isNamed = pendingSnapshotOf(sandbox)?.uid === cached.metadata.uid;
    if (isNamed || isUnsettled(cached)) return cached;
  }
  return readLive(context, sandboxSnapshots, snapshots, { metadata: { namespace, name } }, signal);
}

function isUnsettled(snapshot: SandboxSnapshot): boolean {
  const { state } = snapshotState(snapshot);
  return state === "pending" || state === "saving";
}

/** Collects what a pass needs from the caches. */
function observeSandbox(
  { caches, clock }: SandboxContext,
  sandbox: Sandbox,
  made: MadePods,
): Omit<SandboxObserved, "snapshot"> {
  const { namespace = "", name, uid = "" } = sandbox.metadata;
  const hash = namespacedKey(namespace, nameHash(name));
  const claims = new Map<string, PersistentVolumeClaim>();
  for (const template of sandbox.spec.volumeClaimTemplates ?? []) {
    const claim = sandboxClaimName(template.metadata?.name ?? "", name);
    const found = caches.volumeClaims.get(`${namespace}/${claim}`);
    if (found !== undefined) claims.set(claim, found);
  }
  return {
    sandbox,
    pods: [...caches.pods.byIndex(byLabelHash, hash), ...caches.pods.byIndex(byOwner, `${namespace}/${uid}`)],
    tracked: caches.pods.get(namespacedKey(namespace, trackedPodName(sandbox))),
    made: made.of(sandbox),
    service: caches.services.get(namespacedKey(namespace, name)),
    claims,
    collidesWith: olderNamesake(sandbox, caches.sandboxes.byIndex(byNameHash, hash)),
    nowMs: clock.nowMs(),
  };
}

/** The older of two Sandboxes keeps the hash; by name where they are of one second. */
function olderNamesake(sandbox: Sandbox, sameHash: readonly Sandbox[]): string | undefined {
  const rank = ({ metadata }: Sandbox): string => `${metadata.creationTimestamp ?? ""} ${metadata.name}`;
  const older = sameHash.filter(
    (other) => other.metadata.name !== sandbox.metadata.name && rank(other) < rank(sandbox),
  );
  return older.map((other) => other.metadata.name).sort()[0];
}

/** Turns every relevant change into the key of a Sandbox. */
function watchSandboxes({ caches }: SandboxContext, queue: WorkQueue<string>): void {
  caches.sandboxes.addHandler({
    onAdd: (sandbox, { initial }) => queue.add(keyOf(sandbox), initial ? { priority: initialListPriority } : {}),
    onUpdate: (_old, sandbox) => queue.add(keyOf(sandbox)),
    onDelete: (last) => {
      queue.add(keyOf(last));
      // A younger namesake by hash was waiting for this one to go.
      for (const other of caches.sandboxes.byIndex(byNameHash, scoped(last, nameHash(last.metadata.name))))
        queue.add(keyOf(other));
    },
  });
  const touch = (object: KubeObject): void => {
    const owner = controllerOf(object);
    if (refersTo(owner, sandboxes)) queue.add(scoped(object, owner?.name ?? ""));
  };
  const handler = {
    onAdd: touch,
    onUpdate: (old: KubeObject, object: KubeObject) => {
      touch(old);
      touch(object);
    },
    onDelete: touch,
  };
  caches.services.addHandler(handler);
  caches.volumeClaims.addHandler(handler);
  caches.pods.addHandler(handler);
  // A Sandbox may wait for a Pod that is not its own to appear or to go.
  const touchTracking = (pod: KubeObject): void => {
    for (const sandbox of caches.sandboxes.byIndex(byTrackedPod, scoped(pod, pod.metadata.name)))
      queue.add(keyOf(sandbox));
  };
  caches.pods.addHandler({ onAdd: touchTracking, onDelete: touchTracking });
  const touchStarting = (snapshot: KubeObject): void => {
    for (const sandbox of caches.sandboxes.byIndex(bySnapshot, scoped(snapshot, snapshot.metadata.name)))
      if (snapshotNameFor(sandbox) !== undefined) queue.add(keyOf(sandbox));
  };
  caches.snapshots.addHandler({
    onAdd: touchStarting,
    onUpdate: (_old, snapshot) => touchStarting(snapshot),
    onDelete: touchStarting,
  });
}

/** The steps in which an object of the right name had another owner. */
function refusedSteps(plan: LivePlan, pod: PodResult): string[] {
  return [
    ...(plan.storage.failure === undefined ? [] : ["storage"]),
    ...(pod.plan.failure?.kind === "refused" ? ["pod"] : []),
    ...(plan.service.failure === undefined ? [] : ["service"]),
  ];
}

function earliest(instants: readonly (number | undefined)[]): number | undefined {
  const known = instants.filter((instant) => instant !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

function joined(errors: readonly Error[]): Error | undefined {
  const [first] = errors;
  return errors.length <= 1 ? first : new AggregateError(errors, errors.map((error) => error.message).join("\n"));
}

function countTransitions(metrics: ControllerMetrics, sandbox: Sandbox, after: SandboxStatus, nowMs: number): void {
  const namespace = sandbox.metadata.namespace ?? "";
  const find = (status: SandboxStatus | undefined, type: string) => findCondition(status?.conditions, type)?.status;
  const [was, is] = [find(sandbox.status, "Suspended"), find(after, "Suspended")];
  if (is === "True" && was !== "True") metrics.suspends.inc({ namespace });
  // A frozen Sandbox that goes one rung deeper is not Suspended for a moment, and does not run.
  const isFalling = findCondition(after.conditions, "Ready")?.reason === "SandboxSuspended";
  if (was === "True" && is === "False" && !isFalling) metrics.resumes.inc({ namespace });
  const born = Date.parse(sandbox.metadata.creationTimestamp ?? "");
  const first = find(sandbox.status, "Ready") !== "True" && find(after, "Ready") === "True";
  // Only the first generation of a Sandbox counts: a later Ready is a resume or a recovery.
  if (first && was !== "True" && (sandbox.metadata.generation ?? 1) === 1 && !Number.isNaN(born)) {
    const launchType = sandbox.metadata.labels?.[labelKeys.launchType] === "warm" ? "warm" : "cold";
    metrics.timeToReady.observe({ namespace, launch_type: launchType }, Math.max(0, nowMs - born));
  }
}
