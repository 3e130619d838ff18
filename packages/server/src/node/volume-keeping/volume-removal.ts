import { localVolumeDriver, type PersistentVolume } from "@agent-sandbox/api";
import { type Controller, type ControllerTelemetry, defineController, done, type Outcome } from "@agent-sandbox/kube";
import { podHostId } from "../container-id.ts";
import { HostError } from "../host/host-error.ts";
import type { NodeCaches } from "../node-caches.ts";
import type { PodContext } from "../pods/pod-context.ts";

/** Before a volume is tried again that a container has not let go of yet: its claim is free when the pod has finished, which is before its mounts are gone. */
const tryAgainMs = 250;

/**
 * Deletes the data of a volume with its PersistentVolume: on the sight of that end alone, never because something is missing from a list. What was seen is written down first, so
 * that an agent that is killed goes on with it. Keys are the host's names of volumes.
 */
export function volumeRemoval(
  context: PodContext,
  { volumes }: Pick<NodeCaches, "volumes">,
  telemetry: ControllerTelemetry,
): Controller {
  const { clock, doomedVolumes } = context;
  return defineController({
    name: "node-volume-removal",
    clock,
    telemetry,
    observe: (queue) => {
      volumes.addHandler({
        onDelete: (volume) => {
          const id = hostIdOf(volume);
          if (id !== undefined) queue.add(id);
        },
      });
      for (const { uid } of doomedVolumes.all()) queue.add(uid);
    },
    reconcile: (id, signal) => remove(context, id, signal),
  });
}

/** The host's name of a volume that goes with its object; undefined for one that is to be kept or is not ours. */
function hostIdOf({ spec }: PersistentVolume): string | undefined {
  if (spec?.csi?.driver !== localVolumeDriver || spec.persistentVolumeReclaimPolicy !== "Delete") return undefined;
  const claimUid = spec.claimRef?.uid;
  return claimUid === undefined ? undefined : `pvc-${podHostId(claimUid)}`;
}

async function remove({ host, doomedVolumes }: PodContext, id: string, signal: AbortSignal): Promise<Outcome> {
  if (doomedVolumes.get(id) === undefined) await doomedVolumes.save({ version: 1, uid: id });
  try {
    await host.deleteVolume({ id }, signal);
  } catch (error) {
    if (error instanceof HostError && error.code === "busy") return { kind: "requeue-after", afterMs: tryAgainMs };
    throw error;
  }
  await doomedVolumes.remove(id);
  return done;
}
