import {
  ignore,
  keyOf,
  namespacedKey,
  type PersistentVolume,
  type PersistentVolumeClaim,
  type Pod,
  parseKey,
  persistentVolumeClaims,
  persistentVolumes,
} from "@agent-sandbox/api";
import { type Controller, defineController, done, type Outcome, type WorkQueue } from "@agent-sandbox/kube";
import { byClaim, type Caches } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";
import { type ClaimAction, claimFinalizer, planClaim, planVolume, type VolumeAction, volumeFinalizer } from "./plan.ts";

/** Makes and binds volumes, and lets them go. Keys are claims (`namespace/name`) and volumes (`name`). */
export function volumeBinding(context: StandinContext, caches: Caches): Controller {
  const { claims, volumes, pods, storageClasses } = caches;
  return defineController({
    name: "volume-binding",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [claims, volumes, pods, storageClasses],
    observe: (queue) => observe(caches, queue),
    reconcile: (key, signal) =>
      parseKey(key).namespace === undefined
        ? reconcileVolume(context, caches, key, signal)
        : reconcileClaim(context, caches, key, signal),
  });
}

function observe({ claims, volumes, pods, storageClasses }: Caches, queue: WorkQueue): void {
  onChange(claims, (claim) => {
    queue.add(keyOf(claim));
    if ((claim.spec?.volumeName ?? "") !== "") queue.add(claim.spec?.volumeName ?? "");
    // A claim that went before it was named leaves the volume made for it.
    queue.add(`pvc-${claim.metadata.uid}`);
  });
  onChange(volumes, (volume) => {
    queue.add(volume.metadata.name);
    const reference = volume.spec?.claimRef;
    if (reference !== undefined) queue.add(namespacedKey(reference.namespace, reference.name ?? ""));
    else for (const claim of claims.list()) if (claim.status?.phase !== "Bound") queue.add(keyOf(claim));
  });
  onChange(pods, (pod) => {
    for (const name of claimNames(pod)) queue.add(namespacedKey(pod.metadata.namespace, name));
  });
  onChange(storageClasses, ({ metadata }) => {
    for (const claim of claims.list()) if (claim.spec?.storageClassName === metadata.name) queue.add(keyOf(claim));
  });
}

function claimNames({ spec }: Pod): string[] {
  return (spec?.volumes ?? []).flatMap(({ persistentVolumeClaim }) => persistentVolumeClaim?.claimName ?? []);
}

async function reconcileClaim(
  context: StandinContext,
  caches: Caches,
  key: string,
  signal: AbortSignal,
): Promise<Outcome> {
  const claim = caches.claims.get(key);
  if (claim === undefined) return done;
  const users = caches.pods
    .byIndex(byClaim, key)
    .filter(({ status }) => status?.phase !== "Succeeded" && status?.phase !== "Failed");
  const storageClass = caches.storageClasses.get(claim.spec?.storageClassName ?? "");
  const actions = planClaim({ claim, storageClass, volumes: caches.volumes.list(), users });
  for (const action of actions) await applyToClaim(context, claim, action, signal);
  return { kind: "done", actions: actions.length };
}

async function applyToClaim(
  { client }: StandinContext,
  claim: PersistentVolumeClaim,
  action: ClaimAction,
  signal: AbortSignal,
): Promise<void> {
  const { namespace = "", name, uid, resourceVersion } = claim.metadata;
  const key = { namespace, name };
  const patchClaim = (body: Record<string, unknown>, options = {}) =>
    client
      .patch(persistentVolumeClaims, key, { type: "merge", body }, { signal, ...options })
      .catch(ignore("NotFound"));
  switch (action.do) {
    case "create-volume":
      await client.create(persistentVolumes, action.volume, { signal }).catch(ignore("AlreadyExists"));
      return;
    case "reserve-volume":
      await client.update(persistentVolumes, action.volume, { signal });
      return;
    case "name-volume":
      await patchClaim({
        metadata: { uid, resourceVersion, annotations: { "pv.kubernetes.io/bind-completed": "yes" } },
        spec: { volumeName: action.volumeName },
      });
      return;
    case "set-status":
      await patchClaim({ metadata: { uid }, status: action.status }, { subresource: "status" });
      return;
    case "grow-volume":
      await client.patch(
        persistentVolumes,
        { name: action.volumeName },
        { type: "merge", body: { spec: { capacity: { storage: action.storage } } } },
        { signal },
      );
      return;
    case "release-claim": {
      const finalizers = (claim.metadata.finalizers ?? []).filter((each) => each !== claimFinalizer);
      await patchClaim({ metadata: { uid, resourceVersion, finalizers: finalizers.length === 0 ? null : finalizers } });
      return;
    }
    default:
      return action satisfies never;
  }
}

async function reconcileVolume(
  context: StandinContext,
  { volumes, claims }: Caches,
  name: string,
  signal: AbortSignal,
): Promise<Outcome> {
  const volume = volumes.get(name);
  if (volume === undefined) return done;
  const reference = volume.spec?.claimRef;
  const cached =
    reference === undefined ? undefined : claims.get(namespacedKey(reference.namespace, reference.name ?? ""));
  // Before a volume goes, the server itself must say that its claim is gone.
  const claim = cached ?? (await liveClaim(context, reference, signal));
  const actions = planVolume(volume, claim);
  for (const action of actions) await applyToVolume(context, volume, action, signal);
  return { kind: "done", actions: actions.length };
}

async function liveClaim(
  { client }: StandinContext,
  reference: { namespace?: string; name?: string; uid?: string } | undefined,
  signal: AbortSignal,
): Promise<PersistentVolumeClaim | undefined> {
  if (reference?.name === undefined || reference.uid === undefined) return undefined;
  const key = { namespace: reference.namespace ?? "", name: reference.name };
  return client.get(persistentVolumeClaims, key, { signal }).catch(ignore("NotFound"));
}

async function applyToVolume(
  { client }: StandinContext,
  volume: PersistentVolume,
  action: VolumeAction,
  signal: AbortSignal,
): Promise<void> {
  const { name, uid = "", resourceVersion } = volume.metadata;
  switch (action.do) {
    case "set-phase": {
      const patch = { type: "merge", body: { metadata: { uid }, status: { phase: action.phase } } } as const;
      await client
        .patch(persistentVolumes, { name }, patch, { subresource: "status", signal })
        .catch(ignore("NotFound"));
      return;
    }
    case "delete-volume":
      await client.delete(persistentVolumes, { name }, { uid, signal }).catch(ignore("NotFound"));
      return;
    case "release-volume": {
      const finalizers = (volume.metadata.finalizers ?? []).filter((each) => each !== volumeFinalizer);
      const body = { metadata: { uid, resourceVersion, finalizers: finalizers.length === 0 ? null : finalizers } };
      await client.patch(persistentVolumes, { name }, { type: "merge", body }, { signal }).catch(ignore("NotFound"));
      return;
    }
    default:
      return action satisfies never;
  }
}
