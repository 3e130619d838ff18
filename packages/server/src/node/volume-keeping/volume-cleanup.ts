import type { Sandbox } from "@agent-sandbox/api";
import { HostError } from "../host/host-error.ts";
import type { NodeCaches } from "../node-caches.ts";
import { isKeptFor, keptLayerKey } from "../pods/kept-layer.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { discardSaved } from "../pods/pod-restore.ts";
import { savedIdOf } from "../pods/pod-sleep.ts";

/** Deletes what is kept for a Sandbox when that is seen to go: its writable layers and its saved memory. */
export function cleanUpOnDelete(context: PodContext, caches: NodeCaches): void {
  const { logger } = context;
  const layers = (): void => {
    void removeUnowned(context, caches).catch((error: unknown) => {
      logger.warn({ err: error }, "writable layers could not be removed; the next start does it");
    });
  };
  caches.sandboxes.addHandler({
    onDelete: layers,
    onUpdate: (old, sandbox) => {
      if (old.status?.restart !== undefined && sandbox.status?.restart === undefined) layers();
    },
  });
  context.afterRelease.push(layers);
}

/** Removes what was kept for Sandboxes that are gone: saved memory with its directories, and writable layers. */
export async function removeUnowned(context: PodContext, caches: NodeCaches): Promise<void> {
  const uids = caches.sandboxes.list().map(({ metadata }) => metadata.uid ?? "");
  await removeUnownedMemory(context, uids);
  const snapshots = context.snapshots.all().map(({ uid }) => uid);
  await removeUnownedLayers(context, [...uids, ...snapshots]);
  await removeEarlierLayers(context, caches.sandboxes.list());
}

/** Removes the layers that Sandboxes had before they went back to a snapshot, once they have run from it. */
async function removeEarlierLayers({ host, signal }: PodContext, sandboxes: readonly Sandbox[]): Promise<void> {
  const earlier = new Set(sandboxes.flatMap(earlierLayers));
  if (earlier.size === 0) return;
  for (const { key, mounted } of await host.listWritableLayers(signal))
    if (!mounted && earlier.has(key)) await host.deleteWritableLayer({ key }, signal);
}

/** Returns whose layers are looked for: one that could not be removed at once is removed after one of the next. */
const returnsMax = 16;

function earlierLayers({ metadata, spec, status }: Sandbox): string[] {
  const { generation, startedAt } = status?.restoredFrom ?? {};
  if (generation === undefined || startedAt === undefined || status?.restart !== undefined) return [];
  const { containers, initContainers = [] } = spec.podTemplate.spec;
  const earlier = Array.from({ length: Math.min(generation, returnsMax) }, (_, index) => generation - 1 - index);
  return [...containers, ...initContainers].flatMap(({ name }) =>
    earlier.map((one) => keptLayerKey(metadata.uid ?? "", name, one === 0 ? undefined : one)),
  );
}

/** Memory of a pod that is still here waits for that to go. */
async function removeUnownedMemory(context: PodContext, uids: readonly string[]): Promise<void> {
  const { host, records, signal } = context;
  const used = new Set(records.all().flatMap(({ isHibernated, sandboxUid }) => (isHibernated ? [] : sandboxUid)));
  for (const { sandboxUid } of records.all().filter(({ isHibernated }) => isHibernated === true))
    if (sandboxUid !== undefined && !uids.includes(sandboxUid) && !used.has(sandboxUid))
      await discardSaved(context, sandboxUid, signal);
  const kept = new Set([...uids, ...used].map((uid) => savedIdOf(uid ?? "")));
  // One that may be restored more than once is not a Sandbox's sleep.
  const states = (await host.listSaved(signal)).filter(({ reusable }) => reusable !== true);
  for (const { id } of states) if (!kept.has(id)) await host.discardSaved({ id }, signal);
}

/** One that is still mounted waits for its pod to go. */
async function removeUnownedLayers({ host, signal }: PodContext, uids: readonly string[]): Promise<void> {
  for (const { key, mounted } of await host.listWritableLayers(signal)) {
    if (mounted || uids.some((uid) => isKeptFor(key, uid))) continue;
    try {
      await host.deleteWritableLayer({ key }, signal);
    } catch (error) {
      if (!(error instanceof HostError && error.code === "busy")) throw error;
    }
  }
}
