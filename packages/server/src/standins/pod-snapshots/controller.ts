import type {
  KubeObject,
  PodSnapshot,
  PodSnapshotManualTrigger,
  PodSnapshotPolicy,
  Resource,
  Sandbox,
  SandboxSnapshot,
} from "@agent-sandbox/api";
import {
  annotationKeys,
  ignore,
  isReasonOf,
  keyOf,
  namespacedKey,
  parseKey,
  podOwnerOf,
  podSnapshotPolicies,
  podSnapshots,
  podSnapshotTriggers,
  sandboxes as sandboxResource,
  sandboxSnapshots,
  semanticEqual,
} from "@agent-sandbox/api";
import {
  type Controller,
  defineController,
  done,
  type IndexFunction,
  Informer,
  type Outcome,
} from "@agent-sandbox/kube";
import type { Caches, RunningCache } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";
import {
  hasEnded,
  planPodSnapshot,
  refusedTrigger,
  type SnapshotAction,
  type SnapshotObserved,
  type Target,
} from "./plan.ts";
import { planPolicy } from "./plan-policy.ts";

const byNamespace = "namespace";
const bySandbox = "sandbox";

/** The kinds that only these two controllers read. */
interface Kinds {
  readonly triggers: Informer<PodSnapshotManualTrigger>;
  readonly snapshots: Informer<PodSnapshot>;
  readonly policies: Informer<PodSnapshotPolicy>;
  readonly saved: Informer<SandboxSnapshot>;
  readonly sandboxes: Informer<Sandbox>;
}

/** What main runs: controllers, and the caches that they alone have. */
export interface PodSnapshotStandins {
  readonly controllers: readonly Controller[];
  readonly caches: readonly RunningCache[];
}

/** Serves the kinds of the published snapshot extension by SandboxSnapshots (ADR 58). */
export function podSnapshotStandins(context: StandinContext, { pods }: Caches): PodSnapshotStandins {
  const kinds = openKinds(context);
  return {
    controllers: [snapshotController(context, kinds, pods), policyController(context, kinds)],
    caches: Object.values(kinds),
  };
}

function openKinds({ client, clock, logger }: StandinContext): Kinds {
  const open = <T extends KubeObject>(resource: Resource<T>, indexers: Record<string, IndexFunction<T>> = {}) =>
    new Informer<T>({
      client,
      resource,
      clock,
      indexers,
      onError: (error) => logger.warn({ err: error, resource: resource.resource }, "watch failed"),
    });
  return {
    triggers: open(podSnapshotTriggers),
    snapshots: open(podSnapshots, {
      [bySandbox]: ({ metadata, spec }) => [namespacedKey(metadata.namespace, spec.sandboxName)],
    }),
    policies: open(podSnapshotPolicies, { [byNamespace]: ({ metadata }) => [metadata.namespace ?? ""] }),
    saved: open(sandboxSnapshots),
    sandboxes: open(sandboxResource, { [byNamespace]: ({ metadata }) => [metadata.namespace ?? ""] }),
  };
}

/** Keys are the name that a trigger, its PodSnapshot and the SandboxSnapshot behind it share. */
function snapshotController(context: StandinContext, kinds: Kinds, pods: Caches["pods"]): Controller {
  const { triggers, snapshots, saved, sandboxes } = kinds;
  const { clock, telemetry } = context;
  return defineController({
    name: "pod-snapshots",
    clock,
    telemetry,
    workers: standinWorkers,
    caches: [triggers, snapshots, saved, sandboxes, pods],
    observe: (queue) => {
      onChange(triggers, (trigger) => queue.add(keyOf(trigger)));
      onChange(snapshots, (snapshot) => queue.add(keyOf(snapshot)));
      onChange(saved, (object) => {
        if (snapshots.get(keyOf(object)) !== undefined) queue.add(keyOf(object));
      });
    },
    reconcile: async (key, signal) => {
      const trigger = triggers.get(key);
      const observed: SnapshotObserved = {
        trigger,
        snapshot: snapshots.get(key),
        saved: saved.get(key),
        target: trigger === undefined || hasEnded(trigger) ? undefined : targetOf(trigger, kinds, pods),
        nowMs: clock.nowMs(),
      };
      const actions = planPodSnapshot(observed);
      for (const action of actions) await applySnapshot(context, key, { observed, action }, signal);
      return { kind: "done", actions: actions.length };
    },
  });
}

/** The Sandbox whose Pod a trigger names. */
function targetOf({ metadata, spec }: PodSnapshotManualTrigger, { sandboxes }: Kinds, pods: Caches["pods"]): Target {
  const pod = pods.get(namespacedKey(metadata.namespace, spec.targetPod));
  if (pod === undefined) return { kind: "problem", message: `there is no Pod "${spec.targetPod}" in this namespace` };
  const owner = podOwnerOf(pod, (key) => sandboxes.get(key));
  if (owner.kind === "proven") return { kind: "sandbox", sandbox: owner.sandbox, pod };
  return { kind: "problem", message: `Pod "${spec.targetPod}" is not that of a Sandbox; only those can be saved` };
}

async function applySnapshot(
  context: StandinContext,
  key: string,
  { observed, action }: { readonly observed: SnapshotObserved; readonly action: SnapshotAction },
  signal: AbortSignal,
): Promise<void> {
  const { client } = context;
  switch (action.do) {
    case "create-snapshot":
      if (await isCarriedOut(context, key, signal)) return;
      await orRefuse(context, observed, client.create(podSnapshots, action.object, { signal }), signal);
      return;
    case "create-saved":
      await orRefuse(context, observed, client.create(sandboxSnapshots, action.object, { signal }), signal);
      return;
    case "delete-snapshot":
      await deleteLost(context, key, { observed, uid: action.uid }, signal);
      return;
    case "report-trigger":
      return report(context, podSnapshotTriggers, { object: observed.trigger, status: action.status }, signal);
    case "report-snapshot":
      return report(context, podSnapshots, { object: observed.snapshot, status: action.status }, signal);
    default:
      return action satisfies never;
  }
}

/** By an old view, a snapshot that was made and deleted since would be made again. */
async function isCarriedOut({ client }: StandinContext, key: string, signal: AbortSignal): Promise<boolean> {
  const { namespace = "", name } = parseKey(key);
  const live = await client.get(podSnapshotTriggers, { namespace, name }, { signal }).catch(ignore("NotFound"));
  return live === undefined || hasEnded(live) || live.status?.snapshotCreated !== undefined;
}

/** A quota or the namespace's end refuses as it would refuse the user: that is said on the trigger. What exists already is in the next view. */
async function orRefuse(
  context: StandinContext,
  { trigger }: SnapshotObserved,
  created: Promise<unknown>,
  signal: AbortSignal,
): Promise<void> {
  try {
    await created;
  } catch (error) {
    if (isReasonOf(error, "AlreadyExists")) return;
    if (trigger === undefined || !isReasonOf(error, "Forbidden") || !(error instanceof Error)) throw error;
    const status = refusedTrigger(trigger, error.message, context.clock.nowMs());
    await report(context, podSnapshotTriggers, { object: trigger, status }, signal);
  }
}

/** On the server's word alone: by an old view, a user's object would go for one that exists. */
async function deleteLost(
  { client }: StandinContext,
  key: string,
  { observed, uid }: { readonly observed: SnapshotObserved; readonly uid: string },
  signal: AbortSignal,
): Promise<void> {
  const { namespace = "", name } = parseKey(key);
  const live = await client.get(sandboxSnapshots, { namespace, name }, { signal }).catch(ignore("NotFound"));
  if (live !== undefined && live.metadata.uid === observed.snapshot?.status?.snapshotUID) return;
  await client.delete(podSnapshots, { namespace, name }, { uid, signal }).catch(ignore("NotFound"));
}

async function report<T extends PodSnapshot | PodSnapshotManualTrigger>(
  { client }: StandinContext,
  resource: Resource<T>,
  { object, status }: { readonly object: T | undefined; readonly status: NonNullable<T["status"]> },
  signal: AbortSignal,
): Promise<void> {
  if (object === undefined || semanticEqual(object.status, status)) return;
  const { name, namespace = "", uid } = object.metadata;
  const patch = { type: "merge" as const, body: { metadata: { uid }, status } };
  await client.patch(resource, { namespace, name }, patch, { subresource: "status", signal }).catch(ignore("NotFound"));
}

/** Keys are Sandboxes: the annotation by which they wake from their latest PodSnapshot, and the end of those beyond the number that is kept. */
function policyController(context: StandinContext, kinds: Kinds): Controller {
  const { snapshots, saved, policies, sandboxes } = kinds;
  const { clock, telemetry } = context;
  return defineController({
    name: "pod-snapshot-policies",
    clock,
    telemetry,
    workers: standinWorkers,
    caches: [snapshots, saved, policies, sandboxes],
    observe: (queue) => {
      onChange(snapshots, ({ metadata, spec }) => queue.add(namespacedKey(metadata.namespace, spec.sandboxName)));
      onChange(sandboxes, (sandbox) => {
        if (snapshots.byIndex(bySandbox, keyOf(sandbox)).length > 0) queue.add(keyOf(sandbox));
      });
      onChange(policies, ({ metadata }) => {
        for (const sandbox of sandboxes.byIndex(byNamespace, metadata.namespace ?? "")) queue.add(keyOf(sandbox));
      });
    },
    reconcile: (key, signal) => reconcilePolicy(context, kinds, key, signal),
  });
}

async function reconcilePolicy(
  { client }: StandinContext,
  { snapshots, saved, policies, sandboxes }: Kinds,
  key: string,
  signal: AbortSignal,
): Promise<Outcome> {
  const sandbox = sandboxes.get(key);
  if (sandbox === undefined || sandbox.metadata.deletionTimestamp !== undefined) return done;
  const { namespace = "", name, uid } = sandbox.metadata;
  const plan = planPolicy({
    sandbox,
    policies: policies.byIndex(byNamespace, namespace),
    snapshots: snapshots.byIndex(bySandbox, key).map((snapshot) => ({ snapshot, saved: saved.get(keyOf(snapshot)) })),
  });
  if (plan.restartFrom !== undefined) {
    const annotations = { [annotationKeys.restartFrom]: plan.restartFrom };
    const patch = { type: "merge" as const, body: { metadata: { uid, annotations } } };
    await client.patch(sandboxResource, { namespace, name }, patch, { signal }).catch(ignore("NotFound"));
  }
  for (const { name: old, uid: oldUid } of plan.deleted)
    await client.delete(podSnapshots, { namespace, name: old }, { uid: oldUid, signal }).catch(ignore("NotFound"));
  return done;
}
