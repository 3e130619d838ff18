import type { Pod, Sandbox } from "@agent-sandbox/api";
import { isMemoryGivenUp, pendingSnapshotOf, uidOf } from "@agent-sandbox/api";
import { containerHostId, partHostId } from "../container-id.ts";
import { HostError } from "../host/host-error.ts";
import type { VolumePlan } from "../volumes/plan-volumes.ts";
import { isKeptFor, keptLayerKey } from "./kept-layer.ts";
import type { PodContext } from "./pod-context.ts";
import { type PodRecord, type RestoreRecord, storageUidOf } from "./pod-record.ts";
import type { SnapshotImage, SnapshotRecord } from "./snapshot-record.ts";
import { snapshotSavedId } from "./snapshot-record.ts";

/** The image that is copied is mounted nowhere: no writer waits. */
const pauseMaxMs = 1;

/** What a pod's start from a snapshot follows from. */
export interface StartQuestion {
  readonly pod: Pod;
  /** The Sandbox that names the pod. */
  readonly sandbox: Sandbox | undefined;
  /** What the pod's volumes are on the host, by name. */
  readonly mounts: VolumePlan["mounts"];
}

/** How the first pod of a Sandbox starts from a snapshot. */
export type SnapshotStart = Pick<PodRecord, "origin" | "restore">;

/**
 * What the pod of a Sandbox that names a snapshot starts from; nothing where the Sandbox has started before, or has a layer of its own, which no clone ever replaces.
 * Preconditions: the Sandbox names the pod.
 */
export async function planSnapshotStart(
  { host, snapshots }: PodContext,
  { pod, sandbox, mounts }: StartQuestion,
  signal: AbortSignal,
): Promise<SnapshotStart> {
  const pending = sandbox && pendingSnapshotOf(sandbox);
  if (sandbox === undefined || pending === undefined || sandbox.status?.sleep?.savedAt !== undefined) return {};
  const { uid, name, generation } = pending;
  const own = await host.listWritableLayers(signal);
  const isOwn = (key: string): boolean =>
    generation === undefined ? isKeptFor(key, uidOf(sandbox)) : layersOf(pod, sandbox, generation).includes(key);
  if (own.some(({ key }) => isOwn(key))) return {};
  const saved = snapshotSavedId(uid);
  const refused = (message: string): SnapshotStart => ({
    restore: { saved, state: "failed", message, isShared: true, runs: {} },
  });
  const snapshot = snapshots.get(uid);
  if (snapshot?.state !== "ready") return refused(`the files of SandboxSnapshot "${name}" are not on this node`);
  const claims = snapshot.images.flatMap(({ part }) => (part.is === "claim" ? [part.name] : []));
  const volumes = claims.flatMap((claim): [string, string][] => {
    const mount = mounts.get(claim);
    return mount?.kind === "volume" ? [[claim, mount.id]] : [];
  });
  const missing = claims.find((claim) => !volumes.some(([volume]) => volume === claim));
  if (missing !== undefined) return refused(`the snapshot has volume "${missing}", and the Pod has no claim for it`);
  const present = (await host.listVolumes(signal)).map(({ id }) => id);
  const taken = volumes.find(([, id]) => present.includes(id));
  if (taken !== undefined) return refused(`the claim of volume "${taken[0]}" has been used before`);
  const origin = {
    snapshotUid: uid,
    snapshotName: name,
    isCloned: false,
    volumes: Object.fromEntries(volumes),
    ...(generation !== undefined && { layers: layersOf(pod, sandbox, generation) }),
  };
  if (!snapshot.hasMemory || isMemoryGivenUp(sandbox)) return { origin };
  const state = (await host.listSaved(signal)).find(({ id }) => id === saved);
  if (state === undefined) return refused(`the memory of SandboxSnapshot "${name}" is not on this node`);
  if (state.unusable !== undefined) return refused(state.unusable);
  const difference = differenceOf(pod, snapshot);
  if (difference !== undefined) return refused(difference);
  const restore: RestoreRecord = {
    saved,
    state: "restoring",
    isShared: true,
    ...(snapshot.root !== undefined && { root: snapshot.root }),
    runs: snapshot.runs,
  };
  return { origin, restore };
}

/** What the layers of a pod are called whose Sandbox goes back to a snapshot. */
function layersOf({ spec }: Pod, sandbox: Sandbox, generation: number): string[] {
  const containers = [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])];
  return containers.map(({ name }) => keptLayerKey(uidOf(sandbox), name, generation));
}

/** Memory is of the containers that it was saved of, and of no other. */
function differenceOf({ spec }: Pod, { runs, ended }: SnapshotRecord): string | undefined {
  const has = [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])].map(({ name }) => name).sort();
  const had = [...Object.keys(runs), ...ended.map(({ name }) => name)].sort();
  if (has.join() === had.join()) return undefined;
  return `the snapshot has the memory of containers ${had.join(", ")}, and the Pod has ${has.join(", ")}`;
}

/** What had ended well in the Sandbox that was saved does not run again in this pod. */
export function endedOf({ snapshots }: PodContext, podUid: string, start: SnapshotStart): PodRecord["containers"] {
  const ended = start.restore?.state === "restoring" ? snapshots.get(start.origin?.snapshotUid ?? "")?.ended : [];
  const runs = (ended ?? []).map((run) => {
    const hostId = containerHostId(podUid, run.name, run.attempt);
    return { ...run, hostId, rootfsId: partHostId(podUid, "rootfs", run.name) };
  });
  return Object.fromEntries(runs.map((run) => [run.name, run]));
}

/** Makes the files of a pod's Sandbox out of those of its snapshot, once. Resolves with the record as it is then; a snapshot that is gone meanwhile fails the restore. */
export async function cloneOrigin(
  { host, snapshots, records }: PodContext,
  record: PodRecord,
  stateId: string,
  signal: AbortSignal,
): Promise<PodRecord> {
  const { origin } = record;
  if (origin === undefined || origin.isCloned) return record;
  const fail = async (message: string): Promise<PodRecord> => {
    const restore = { saved: snapshotSavedId(origin.snapshotUid), isShared: true, runs: {}, ...record.restore };
    const failed: PodRecord = { ...record, restore: { ...restore, state: "failed", message } };
    await records.save(failed);
    return failed;
  };
  const snapshot = snapshots.get(origin.snapshotUid);
  if (snapshot?.state !== "ready") return fail("the snapshot was deleted before its files were copied");
  try {
    for (const { kind, id, part } of snapshot.images) {
      const to = targetOf(record, part, stateId);
      if (to !== undefined) await host.cloneImage({ kind, from: id, to, pauseMaxMs }, signal);
    }
  } catch (error) {
    if (!(error instanceof HostError && error.code === "not-found")) throw error;
    return fail(error.message);
  }
  const cloned = { ...record, origin: { ...origin, isCloned: true } };
  await records.keep(cloned);
  return cloned;
}

/** What an image becomes in a pod; directories are of the memory that refers to their files, and begin empty without it. */
function targetOf(record: PodRecord, part: SnapshotImage["part"], stateId: string): string | undefined {
  switch (part.is) {
    case "layer":
      return keptLayerKey(record.sandboxUid ?? "", part.container, record.layerGeneration);
    case "state":
      return record.restore === undefined ? undefined : stateId;
    case "claim":
      return record.origin?.volumes[part.name];
    case "volume":
      return record.restore === undefined ? undefined : partHostId(storageUidOf(record), "volume", part.name);
    default:
      return part satisfies never;
  }
}

/** Removes the clones of a pod that has not come to run from them: the Sandbox's next pod begins with fresh ones. */
export async function discardClones({ host }: PodContext, record: PodRecord, signal: AbortSignal): Promise<void> {
  const { origin, restore, sandboxUid } = record;
  if (origin === undefined || restore === undefined || restore.state === "restored" || sandboxUid === undefined) return;
  const isClone = (key: string): boolean => origin.layers?.includes(key) ?? isKeptFor(key, sandboxUid);
  for (const { key } of await host.listWritableLayers(signal))
    if (isClone(key)) await host.deleteWritableLayer({ key }, signal);
  for (const id of Object.values(origin.volumes)) await host.deleteVolume({ id }, signal);
}
