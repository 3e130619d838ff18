import { partHostId, podHostId } from "../container-id.ts";
import type { ImageKind } from "../host/image-clone.ts";
import type { ContainerRecord } from "./pod-record.ts";

/** One image of a snapshot, and what it is in the pods that start from it. */
export interface SnapshotImage {
  readonly kind: ImageKind;
  /** The image of the Sandbox that it is a copy of. */
  readonly from: string;
  readonly id: string;
  readonly part:
    | { readonly is: "layer"; readonly container: string }
    | { readonly is: "state" }
    /** An emptyDir. */
    | { readonly is: "volume"; readonly name: string }
    /** The volume of one of the Sandbox's own claims, by its template. */
    | { readonly is: "claim"; readonly name: string };
}

/** What was saved, as the API tells it. */
export interface SnapshotResult {
  readonly takenAt: string;
  readonly standstillMs: number;
  readonly copy: "Reflink" | "Copy";
  readonly sizeBytes: number;
  readonly memorySizeBytes?: number;
  readonly imageDigest?: string;
  readonly runtimeVersion?: string;
}

/** Everything one snapshot has on this node. It is on disk before the first side effect, so that a killed agent finds it again. */
export interface SnapshotRecord {
  readonly version: 1;
  /** Of the SandboxSnapshot. */
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** `saving`: nothing of it may be used, and what is there of it goes before it is taken again. */
  readonly state: "saving" | "ready";
  /** The root container of the sandbox that stands still for it, while it is being taken. */
  readonly paused?: string;
  readonly hasMemory: boolean;
  readonly images: readonly SnapshotImage[];
  /** With memory: the runs that were saved, by container. */
  readonly runs: Readonly<Record<string, { readonly hostId: string; readonly attempt: number }>>;
  /** With memory: containers that had ended well, and do not run again. */
  readonly ended: readonly ContainerRecord[];
  /** The root container that the saved sandbox had besides those. */
  readonly root?: string;
  /** Set with `ready`. */
  readonly result?: SnapshotResult;
}

/** Begins the name of a snapshot's copy of a volume; no volume of a claim begins so. */
const volumePrefix = "snap-";

/** What a snapshot's copy of the volume of a claim is called. */
export function snapshotVolumeId(uid: string, name: string): string {
  return `${volumePrefix}${partHostId(uid, "claim", name)}`;
}

/** Whether a volume is a snapshot's copy, and not that of a claim. */
export function isSnapshotVolume(id: string): boolean {
  return id.startsWith(volumePrefix);
}

/** What the saved memory of a snapshot is called. */
export function snapshotSavedId(uid: string): string {
  return podHostId(uid);
}
