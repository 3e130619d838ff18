import type { PersistentVolume } from "@agent-sandbox/api";
import { localVolumeDriver } from "@agent-sandbox/api";
import { podHostId } from "../container-id.ts";
import { HostError } from "../host/host-error.ts";
import type { NodeCaches } from "../node-caches.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { isKeptFor } from "../pods/start-container.ts";

/**
 * Deletes data whose owner is seen to go: a volume with its PersistentVolume, a kept writable layer with its Sandbox.
 * Volumes are deleted on that sight alone, never because something is missing from a list.
 */
export function cleanUpOnDelete(context: PodContext, caches: NodeCaches): void {
  const { host, logger } = context;
  caches.volumes.addHandler({
    onDelete: (volume) => {
      const id = hostIdOf(volume);
      if (id === undefined) return;
      void host
        .deleteVolume({ id })
        .catch((error: unknown) => logger.error({ err: error, id }, "volume could not be deleted"));
    },
  });
  const layers = (): void => {
    void removeUnownedLayers(context, caches).catch((error: unknown) => {
      logger.warn({ err: error }, "writable layers could not be removed; the next start does it");
    });
  };
  caches.sandboxes.addHandler({ onDelete: layers });
  context.afterRelease.push(layers);
}

/** The host's name of a volume that goes with its object; undefined for one that is to be kept or is not ours. */
function hostIdOf({ spec }: PersistentVolume): string | undefined {
  if (spec?.csi?.driver !== localVolumeDriver || spec.persistentVolumeReclaimPolicy !== "Delete") return undefined;
  const claimUid = spec.claimRef?.uid;
  return claimUid === undefined ? undefined : `pvc-${podHostId(claimUid)}`;
}

/** Removes kept layers of Sandboxes that are gone; one that is still mounted waits for its pod to go. */
export async function removeUnownedLayers({ host, signal }: PodContext, caches: NodeCaches): Promise<void> {
  const uids = caches.sandboxes.list().map(({ metadata }) => metadata.uid ?? "");
  for (const { key, mounted } of await host.listWritableLayers(signal)) {
    if (mounted || uids.some((uid) => isKeptFor(key, uid))) continue;
    try {
      await host.deleteWritableLayer({ key }, signal);
    } catch (error) {
      if (!(error instanceof HostError && error.code === "busy")) throw error;
    }
  }
}
