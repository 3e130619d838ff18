import type { Container, Sandbox, SandboxSnapshot } from "@agent-sandbox/api";
import { partHostId } from "../container-id.ts";
import type { WritableLayer } from "../host/rootfs.ts";
import { isKeptFor, keptLayerKey } from "../pods/kept-layer.ts";
import { type PodRecord, storageUidOf } from "../pods/pod-record.ts";
import { stateDirId } from "../pods/prepare-pod.ts";
import { type SnapshotImage, snapshotVolumeId } from "../pods/snapshot-record.ts";

/** What this node knows of a Sandbox that is to be saved. */
export interface SourceQuestion {
  readonly snapshot: SandboxSnapshot;
  readonly sandbox: Sandbox;
  /** Of its pods on this node; one that is hibernated comes last. */
  readonly records: readonly PodRecord[];
  readonly layers: readonly WritableLayer[];
  /** What the volumes of the Sandbox's own claims are called on the host, by template; those that are there. */
  readonly claims: ReadonlyMap<string, string>;
  /** Whether a pod runs with all of its containers, and is neither being restored nor on its way to sleep. */
  readonly isWhole: (record: PodRecord) => boolean;
}

/** What a snapshot is taken of. */
export type Source =
  /** No file of the Sandbox is on this node. */
  | { readonly from: "elsewhere" }
  /** Its pod starts, ends or falls asleep; its state is looked at again. */
  | { readonly from: "moving" }
  | { readonly from: "running" | "hibernated"; readonly record: PodRecord; readonly images: readonly SnapshotImage[] }
  /** Files alone: it is stopped, or its memory is not wanted. */
  | { readonly from: "files"; readonly images: readonly SnapshotImage[] }
  /** It cannot be taken, whatever happens. */
  | { readonly from: "refused"; readonly message: string };

/** Decides what a snapshot is taken of; a Sandbox of which nothing can be told yet is looked at again. */
export function planSource(question: SourceQuestion): Source {
  const { snapshot, sandbox, records, layers, isWhole } = question;
  const [record] = records;
  const kept = layers.filter(({ key }) => isKeptFor(key, sandbox.metadata.uid ?? ""));
  if (record === undefined && kept.length === 0) return { from: "elsewhere" };
  const obstacle = obstacleOf(question, record);
  if (obstacle !== undefined) return { from: "refused", message: obstacle };
  const volumes = claimsOf(question);
  if (volumes === undefined) return { from: "moving" };
  const generation = record === undefined ? sandbox.status?.restoredFrom?.generation : record.layerGeneration;
  const images = [...layersOf(question, kept, generation), ...volumes];
  if (snapshot.spec.memory === false || record === undefined)
    return kept.length === 0 ? { from: "moving" } : { from: "files", images };
  if (record.runtime !== "runsc") return { from: "refused", message: "memory is saved under runsc alone" };
  const withMemory = [...images, ...directoriesOf(question, record)];
  if (record.isHibernated === true) return { from: "hibernated", record, images: withMemory };
  return isWhole(record) ? { from: "running", record, images: withMemory } : { from: "moving" };
}

/** Why a Sandbox cannot be saved, by what it is made of. */
function obstacleOf({ snapshot, sandbox }: SourceQuestion, record: PodRecord | undefined): string | undefined {
  const { volumes = [] } = sandbox.spec.podTemplate.spec ?? {};
  if (snapshot.spec.memory === false) return undefined;
  if (record === undefined)
    return snapshot.spec.memory === true
      ? "the Sandbox is stopped and has no memory: leave out memory: true"
      : undefined;
  const claimed = volumes.find((volume) => (volume.persistentVolumeClaim ?? volume.ephemeral) !== undefined);
  if (claimed !== undefined)
    return `volume "${claimed.name}" is of a claim that is not the Sandbox's own, and memory that refers to it cannot be saved: name it in volumeClaimTemplates, or set memory: false`;
  const inMemory = volumes.find(({ emptyDir }) => emptyDir?.medium === "Memory");
  if (inMemory === undefined) return undefined;
  return `emptyDir "${inMemory.name}" is in memory and cannot be saved: set memory: false to save the files`;
}

function layersOf(
  { snapshot, sandbox }: SourceQuestion,
  kept: readonly WritableLayer[],
  generation: number | undefined,
): SnapshotImage[] {
  const [uid, sandboxUid] = [snapshot.metadata.uid ?? "", sandbox.metadata.uid ?? ""];
  return containersOf(sandbox).flatMap(({ name }) => {
    const from = keptLayerKey(sandboxUid, name, generation);
    if (!kept.some(({ key }) => key === from)) return [];
    return [{ kind: "writable", from, id: keptLayerKey(uid, name), part: { is: "layer", container: name } } as const];
  });
}

/** The volumes of the Sandbox's own claims; undefined while one of them is not there. */
function claimsOf({ snapshot, sandbox, claims }: SourceQuestion): SnapshotImage[] | undefined {
  const uid = snapshot.metadata.uid ?? "";
  const images = (sandbox.spec.volumeClaimTemplates ?? []).map(({ metadata }): SnapshotImage | undefined => {
    const name = metadata?.name ?? "";
    const from = claims.get(name);
    if (from === undefined) return undefined;
    return { kind: "volume", from, id: snapshotVolumeId(uid, name), part: { is: "claim", name } };
  });
  return images.every((image) => image !== undefined) ? images : undefined;
}

/** The directories that memory refers to: the daemon's, and those of the user. */
function directoriesOf({ snapshot, sandbox }: SourceQuestion, record: PodRecord): SnapshotImage[] {
  const uid = snapshot.metadata.uid ?? "";
  const state = stateDirId(record);
  const daemon: SnapshotImage = {
    kind: "empty-dir",
    from: state,
    id: partHostId(uid, "node", "state"),
    part: { is: "state" },
  };
  const named = (sandbox.spec.podTemplate.spec?.volumes ?? []).flatMap(({ name }): SnapshotImage[] => {
    const from = partHostId(storageUidOf(record), "volume", name);
    if (!record.emptyDirs.includes(from)) return [];
    return [{ kind: "empty-dir", from, id: partHostId(uid, "volume", name), part: { is: "volume", name } }];
  });
  return [...(record.emptyDirs.includes(state) ? [daemon] : []), ...named];
}

function containersOf({ spec }: Sandbox): readonly Pick<Container, "name">[] {
  const { spec: pod } = spec.podTemplate;
  return [...(pod?.containers ?? []), ...(pod?.initContainers ?? [])];
}
