import {
  formatTimestamp,
  isReasonOf,
  localVolumeDriver,
  type PersistentVolume,
  type PersistentVolumeClaim,
  parseQuantity,
  persistentVolumeClaims,
} from "@agent-sandbox/api";
import { type Controller, type ControllerTelemetry, defineController, done } from "@agent-sandbox/kube";
import { podHostId } from "../container-id.ts";
import { HostError } from "../host/host-error.ts";
import type { Volume } from "../host/volume.ts";
import type { NodeCaches } from "../node-caches.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { claimName } from "../volumes/plan-volumes.ts";

/** The condition that Kubernetes shows while a volume waits for its next start to grow. */
const resizePending = "FileSystemResizePending";

/** What growing one volume comes down to. */
export type Growth =
  | { readonly do: "nothing" }
  /** The file system is as large as the volume says: the claim may say so. */
  | { readonly do: "report" }
  /** Its file system is not mounted, so that it cannot be enlarged there: the next start does. */
  | { readonly do: "wait" }
  | { readonly do: "grow"; readonly sizeBytes: number };

/** Decides about one volume. `onDisk` is undefined for one that was never mounted: it is made in the right size. Exported for tests. */
export function planGrowth(volume: PersistentVolume, claim: PersistentVolumeClaim, onDisk: Volume | undefined): Growth {
  const wanted = parseQuantity(volume.spec?.capacity?.["storage"] ?? "0");
  const told = parseQuantity(claim.status?.capacity?.["storage"] ?? "0");
  if (wanted.compare(told) <= 0) return { do: "nothing" };
  const sizeBytes = Number(wanted.units);
  if (onDisk === undefined || onDisk.sizeBytes >= sizeBytes) return { do: "report" };
  return onDisk.mounted ? { do: "grow", sizeBytes } : { do: "wait" };
}

/** The one key: the volumes of the host are listed once for all that grew. */
const key = "volumes";

/** Enlarges volumes whose objects grew, while a pod uses them or at its next start, and says on the claim when that is done. */
export function volumeExpansion(context: PodContext, caches: NodeCaches, telemetry: ControllerTelemetry): Controller {
  /** Names of volumes that may have to grow. Bound: the volumes there are. */
  const growing = new Set<string>();
  return defineController({
    name: "node-volumes",
    clock: context.clock,
    telemetry,
    observe: (queue) => {
      const add = (): void => {
        if (growing.size > 0) queue.add(key);
      };
      const note = (volume: PersistentVolume): void => {
        if (volume.spec?.csi?.driver === localVolumeDriver) growing.add(volume.metadata.name);
        add();
      };
      caches.volumes.addHandler({
        onAdd: note,
        onUpdate: (_old, volume) => note(volume),
        onDelete: ({ metadata }) => growing.delete(metadata.name),
      });
      caches.pods.addHandler({ onUpdate: add, onDelete: add });
    },
    reconcile: async () => {
      if (growing.size > 0) await expandAll(context, caches, growing);
      return done;
    },
  });
}

async function expandAll(context: PodContext, caches: NodeCaches, growing: Set<string>): Promise<void> {
  const { host, signal } = context;
  const onDisk = new Map((await host.listVolumes(signal)).map((volume) => [volume.id, volume]));
  for (const name of growing) {
    const volume = caches.volumes.get(name);
    // A claim that no pod of this node names is none of its business; it may not even read it.
    if (volume === undefined || !isNamed(caches, volume)) continue;
    const claim = await claimOf(context, volume);
    if (claim === undefined) continue;
    const id = `pvc-${podHostId(claim.metadata.uid ?? "")}`;
    if (await expand(context, { volume, claim, id, onDisk: onDisk.get(id) })) growing.delete(name);
  }
}

function isNamed(caches: NodeCaches, { spec }: PersistentVolume): boolean {
  const { namespace, name } = spec?.claimRef ?? {};
  return caches.pods
    .list()
    .some(
      (pod) =>
        pod.metadata.namespace === namespace &&
        (pod.spec?.volumes ?? []).some((volume) => claimName(pod, volume) === name && name !== undefined),
    );
}

interface Expansion {
  readonly volume: PersistentVolume;
  readonly claim: PersistentVolumeClaim;
  readonly id: string;
  readonly onDisk: Volume | undefined;
}

/** Resolves with whether nothing is left to do. */
async function expand(context: PodContext, { volume, claim, id, onDisk }: Expansion): Promise<boolean> {
  const { host, signal } = context;
  const growth = planGrowth(volume, claim, onDisk);
  switch (growth.do) {
    case "nothing":
      return true;
    case "report":
      await writeClaim(context, claim, { capacity: { ...volume.spec?.capacity }, conditions: [] });
      return true;
    case "grow":
      try {
        await host.ensureVolume({ id, sizeBytes: growth.sizeBytes }, signal);
      } catch (error) {
        if (!(error instanceof HostError && error.code === "busy")) throw error;
        await tellPending(context, claim);
        return false;
      }
      await writeClaim(context, claim, { capacity: { ...volume.spec?.capacity }, conditions: [] });
      return true;
    case "wait":
      await tellPending(context, claim);
      return false;
    default:
      return growth satisfies never;
  }
}

async function tellPending(context: PodContext, claim: PersistentVolumeClaim): Promise<void> {
  if (claim.status?.conditions?.some(({ type }) => type === resizePending)) return;
  const message = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
  const lastTransitionTime = formatTimestamp(context.clock.nowMs());
  const conditions = [{ type: resizePending, status: "True", message, lastTransitionTime }];
  await writeClaim(context, claim, { conditions });
}

async function writeClaim(
  { client, signal }: PodContext,
  { metadata }: PersistentVolumeClaim,
  status: NonNullable<PersistentVolumeClaim["status"]>,
): Promise<void> {
  const claim = { namespace: metadata.namespace ?? "", name: metadata.name };
  const body = { metadata: { uid: metadata.uid }, status };
  await client.patch(persistentVolumeClaims, claim, { type: "merge", body }, { subresource: "status", signal });
}

/** The claim that the volume is bound to. */
async function claimOf(
  { client, signal }: PodContext,
  volume: PersistentVolume,
): Promise<PersistentVolumeClaim | undefined> {
  const { namespace = "", name = "", uid } = volume.spec?.claimRef ?? {};
  try {
    const claim = await client.get(persistentVolumeClaims, { namespace, name }, { signal });
    return claim.metadata.uid === uid ? claim : undefined;
  } catch (error) {
    if (isReasonOf(error, "NotFound") || isReasonOf(error, "Forbidden")) return undefined;
    throw error;
  }
}
