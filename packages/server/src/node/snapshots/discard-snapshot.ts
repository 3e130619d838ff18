import { HostError } from "../host/host-error.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { isSnapshotVolume, type SnapshotImage, type SnapshotRecord, snapshotSavedId } from "../pods/snapshot-record.ts";

/**
 * Removes all of a snapshot: a sandbox that stands still for it goes on first, and the memory goes before the files that it refers to. Every verb may be repeated; the record
 * goes last. `busy` while a sandbox still reads its memory.
 */
export async function discardSnapshot(context: PodContext, record: SnapshotRecord, signal: AbortSignal): Promise<void> {
  const { host, snapshots } = context;
  const saved = snapshotSavedId(record.uid);
  if (record.paused !== undefined) await goOn(context, record.paused, saved, signal);
  if (record.hasMemory) await host.discardSaved({ id: saved }, signal);
  for (const image of record.images) await removeImage(context, image, signal);
  await snapshots.remove(record.uid);
}

/** Lets a sandbox go on that stands still for a snapshot, without what was saved of it. One that has ended since has nothing to go on with. */
export async function goOn(
  { host }: Pick<PodContext, "host">,
  id: string,
  saved: string,
  signal: AbortSignal,
): Promise<void> {
  try {
    await host.continueSandbox({ id, saved }, signal);
  } catch (error) {
    if (!(error instanceof HostError && (error.code === "busy" || error.code === "not-found"))) throw error;
  }
}

function removeImage({ host }: PodContext, { kind, id }: SnapshotImage, signal: AbortSignal): Promise<void> {
  switch (kind) {
    case "writable":
      return host.deleteWritableLayer({ key: id }, signal);
    case "volume":
      return host.deleteVolume({ id }, signal);
    case "empty-dir":
      return host.removeEmptyDir({ id }, signal);
    default:
      return kind satisfies never;
  }
}

/** Takes over what an earlier agent left: what it was still taking goes, so that no sandbox stands still for it, and so do memory and copies of volumes that no record names. */
export async function recoverSnapshots(context: PodContext): Promise<void> {
  const { host, snapshots, shelf, signal } = context;
  await snapshots.load(shelf);
  for (const record of snapshots.all()) if (record.state === "saving") await discardSnapshot(context, record, signal);
  const known = new Set(snapshots.all().map(({ uid }) => snapshotSavedId(uid)));
  for (const { id, reusable } of await host.listSaved(signal))
    if (reusable === true && !known.has(id)) await host.discardSaved({ id }, signal);
  const images = new Set(snapshots.all().flatMap((record) => record.images.map(({ id }) => id)));
  for (const { id } of await host.listVolumes(signal))
    if (isSnapshotVolume(id) && !images.has(id)) await host.deleteVolume({ id }, signal);
}
