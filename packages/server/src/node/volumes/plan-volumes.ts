import type { PersistentVolume, PersistentVolumeClaim, Pod, Volume } from "@agent-sandbox/api";
import { localVolumeDriver, parseQuantity } from "@agent-sandbox/api";
import { partHostId, podHostId } from "../container-id.ts";
import type { MountSource } from "../host/container.ts";
import type { EnsureEmptyDirRequest, EnsureVolumeRequest, WriteFilesRequest } from "../host/volume.ts";
import { isFilesVolume, type VolumeSources, volumeFiles } from "./volume-files.ts";

/** What the host has to make for one pod before its containers start, and how containers name it. */
export interface VolumePlan {
  readonly volumes: readonly EnsureVolumeRequest[];
  readonly emptyDirs: readonly EnsureEmptyDirRequest[];
  readonly files: readonly WriteFilesRequest[];
  /** By volume name. */
  readonly mounts: ReadonlyMap<string, MountSource>;
}

/** Either the plan, or why it cannot be made yet. */
export type VolumePlanResult =
  | { readonly ok: true; readonly plan: VolumePlan }
  | { readonly ok: false; readonly message: string };

/** A claim and the volume it is bound to, as far as they could be read. */
export interface FoundClaim {
  readonly claim: PersistentVolumeClaim;
  readonly volume: PersistentVolume | undefined;
}

/** What a pod's volumes follow from. */
export interface VolumeQuestion {
  readonly pod: Pod;
  /** What emptyDirs and files are named by: the pod's uid, or that of the pod whose directories it has taken over. */
  readonly storageUid: string;
  readonly sources: VolumeSources;
  readonly claim: (name: string) => FoundClaim | undefined;
  /** Size of an emptyDir on disk that names none: a sandbox must not be able to fill the machine's disk. */
  readonly emptyDirBytesDefault: number;
}

/** Size of a memory volume that names none: half of what a small pod has, and never the machine's. */
const memoryBytesDefault = 64 * 2 ** 20;

/** Turns a pod's volumes into requests to the host. */
export function planVolumes({
  pod,
  storageUid,
  sources,
  claim,
  emptyDirBytesDefault,
}: VolumeQuestion): VolumePlanResult {
  const gid = pod.spec?.securityContext?.fsGroup;
  const plan = {
    volumes: [] as EnsureVolumeRequest[],
    emptyDirs: [] as EnsureEmptyDirRequest[],
    files: [] as WriteFilesRequest[],
    mounts: new Map<string, MountSource>(),
  };
  for (const volume of pod.spec?.volumes ?? []) {
    const id = partHostId(storageUid, "volume", volume.name);
    if (isFilesVolume(volume)) {
      const result = volumeFiles(pod, volume, sources);
      if (!result.ok)
        return { ok: false, message: `MountVolume.SetUp failed for volume "${volume.name}" : ${result.message}` };
      const files =
        gid === undefined ? result.files : result.files.map((file) => ({ ...file, gid, mode: file.mode | 0o040 }));
      plan.files.push({ id, files });
      plan.mounts.set(volume.name, { kind: "files", id });
    } else if (volume.hostPath !== undefined) {
      plan.mounts.set(volume.name, { kind: "host-path", path: volume.hostPath.path });
    } else if (claimName(pod, volume) !== undefined) {
      const planned = planClaim({ name: claimName(pod, volume) ?? "", claim, gid });
      if (!planned.ok) return planned;
      plan.volumes.push(planned.volume);
      plan.mounts.set(volume.name, { kind: "volume", id: planned.volume.id });
    } else {
      plan.emptyDirs.push(emptyDir({ volume, id, gid, diskBytesDefault: emptyDirBytesDefault }));
      plan.mounts.set(volume.name, { kind: "empty-dir", id });
    }
  }
  return { ok: true, plan };
}

/** A generic ephemeral volume has a claim of its own, named after pod and volume. */
export function claimName(pod: Pod, volume: Volume): string | undefined {
  if (volume.ephemeral !== undefined) return `${pod.metadata.name}-${volume.name}`;
  return volume.persistentVolumeClaim?.claimName;
}

type ClaimResult =
  | { readonly ok: true; readonly volume: EnsureVolumeRequest }
  | { readonly ok: false; readonly message: string };

function planClaim(question: { name: string; claim: VolumeQuestion["claim"]; gid: number | undefined }): ClaimResult {
  const { name, claim, gid } = question;
  const { claim: found, volume } = claim(name) ?? {};
  if (found === undefined) return { ok: false, message: `persistentvolumeclaim "${name}" not found` };
  if (found.metadata.deletionTimestamp !== undefined)
    return { ok: false, message: `persistentvolumeclaim "${name}" is being deleted` };
  if (found.status?.phase !== "Bound") return { ok: false, message: `persistentvolumeclaim "${name}" is not bound` };
  // An empty image in place of another driver's volume would look like lost data.
  const driver = volume?.spec?.csi?.driver;
  if (driver !== localVolumeDriver) {
    const what = volume === undefined ? "cannot be read" : `is not one of ${localVolumeDriver}`;
    return { ok: false, message: `persistentvolume "${found.spec?.volumeName ?? ""}" of claim "${name}" ${what}` };
  }
  const asked = found.spec?.resources?.requests?.["storage"] ?? found.status.capacity?.["storage"];
  if (asked === undefined) return { ok: false, message: `persistentvolumeclaim "${name}" asks for no size` };
  const sizeBytes = Math.max(2 ** 20, Number(parseQuantity(asked).units));
  return {
    ok: true,
    volume: { id: claimHostId(found.metadata.uid ?? ""), sizeBytes, ...(gid !== undefined && { gid }) },
  };
}

/** A claim's data is named by the claim's uid: a claim of the same name made later is another volume. */
export function claimHostId(claimUid: string): string {
  return `pvc-${podHostId(claimUid)}`;
}

interface EmptyDirQuestion {
  readonly volume: Volume;
  readonly id: string;
  readonly gid: number | undefined;
  readonly diskBytesDefault: number;
}

function emptyDir({ volume, id, gid, diskBytesDefault }: EmptyDirQuestion): EnsureEmptyDirRequest {
  const isMemory = volume.emptyDir?.medium === "Memory";
  const limit = volume.emptyDir?.sizeLimit;
  const asked = limit === undefined ? 0 : Number(parseQuantity(limit).units);
  const sizeBytes = asked > 0 ? Math.max(2 ** 20, asked) : isMemory ? memoryBytesDefault : diskBytesDefault;
  return { id, sizeBytes, ...(isMemory && { memory: true }), ...(gid !== undefined && { gid }) };
}
