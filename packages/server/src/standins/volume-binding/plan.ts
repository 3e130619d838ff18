import {
  localVolumeDriver,
  type PersistentVolume,
  type PersistentVolumeClaim,
  type Pod,
  parseQuantity,
  type StorageClass,
} from "@agent-sandbox/api";

/** Holds a claim until no Pod uses it. */
export const claimFinalizer = "kubernetes.io/pvc-protection";
/** Holds a volume until no claim is bound to it. */
export const volumeFinalizer = "kubernetes.io/pv-protection";
const boundByController = "pv.kubernetes.io/bound-by-controller";

/** What a pass over a claim looks at. */
export interface ObservedClaim {
  readonly claim: PersistentVolumeClaim;
  readonly storageClass: StorageClass | undefined;
  readonly volumes: readonly PersistentVolume[];
  /** Pods that name the claim and are not finished. */
  readonly users: readonly Pod[];
}

/** One step over a claim. */
export type ClaimAction =
  | { readonly do: "create-volume"; readonly volume: PersistentVolume }
  | { readonly do: "reserve-volume"; readonly volume: PersistentVolume }
  | { readonly do: "name-volume"; readonly volumeName: string }
  | { readonly do: "set-status"; readonly status: NonNullable<PersistentVolumeClaim["status"]> }
  | { readonly do: "grow-volume"; readonly volumeName: string; readonly storage: string }
  | { readonly do: "release-claim" };

/** Decides how a claim comes to its volume, grows, and goes. */
export function planClaim({ claim, storageClass, volumes, users }: ObservedClaim): readonly ClaimAction[] {
  if (claim.metadata.deletionTimestamp !== undefined) {
    const isHeld = (claim.metadata.finalizers ?? []).includes(claimFinalizer);
    return isHeld && users.length === 0 ? [{ do: "release-claim" }] : [];
  }
  const own = volumes.find(
    (volume) =>
      volume.spec?.claimRef?.uid === claim.metadata.uid &&
      claim.metadata.uid !== undefined &&
      !isElsewhere(claim, volume),
  );
  if (own !== undefined) return finishBinding(claim, own, storageClass);
  const isNamed = (claim.spec?.volumeName ?? "") !== "";
  if (isNamed && claim.status?.phase === "Bound") return lost(claim);
  const suitable = volumes.filter((volume) => canServe(volume, claim)).sort(bySize)[0];
  if (suitable !== undefined) return [{ do: "reserve-volume", volume: withClaim(suitable, claim) }];
  // Who names a volume wants that one or none: it waits for it, also where another has it, and could never be given one that is made.
  if (isNamed || storageClass?.provisioner !== localVolumeDriver) return pending(claim);
  return [{ do: "create-volume", volume: newVolume(claim, storageClass) }];
}

/** Whether a claim names another volume; what it names never changes. */
function isElsewhere({ spec }: PersistentVolumeClaim, { metadata }: PersistentVolume): boolean {
  return (spec?.volumeName ?? "") !== "" && spec?.volumeName !== metadata.name;
}

function finishBinding(
  claim: PersistentVolumeClaim,
  volume: PersistentVolume,
  storageClass: StorageClass | undefined,
): ClaimAction[] {
  const { name } = volume.metadata;
  if (claim.spec?.volumeName !== name) return [{ do: "name-volume", volumeName: name }];
  if (claim.status?.phase !== "Bound") {
    const status = {
      phase: "Bound",
      accessModes: volume.spec?.accessModes ?? [],
      capacity: { ...volume.spec?.capacity },
    };
    return [{ do: "set-status", status }];
  }
  const [wanted, held] = [requested(claim), volume.spec?.capacity?.["storage"] ?? "0"];
  const grows = parseQuantity(wanted).compare(parseQuantity(held)) > 0;
  // The node enlarges the image behind the volume and reports the claim's capacity when it has.
  return grows && storageClass?.allowVolumeExpansion === true
    ? [{ do: "grow-volume", volumeName: name, storage: wanted }]
    : [];
}

function lost({ status }: PersistentVolumeClaim): ClaimAction[] {
  return status?.phase === "Lost" ? [] : [{ do: "set-status", status: { phase: "Lost" } }];
}

function pending({ status }: PersistentVolumeClaim): ClaimAction[] {
  return status?.phase === undefined ? [{ do: "set-status", status: { phase: "Pending" } }] : [];
}

function requested({ spec }: PersistentVolumeClaim): string {
  return spec?.resources?.requests?.["storage"] ?? "0";
}

/** A volume made by hand: reserved for this claim by name, or free, of the same class and large enough. */
function canServe({ metadata, spec, status }: PersistentVolume, claim: PersistentVolumeClaim): boolean {
  if (metadata.deletionTimestamp !== undefined || status?.phase === "Released" || status?.phase === "Failed")
    return false;
  const wantedName = claim.spec?.volumeName ?? "";
  if (wantedName !== "" && wantedName !== metadata.name) return false;
  const reference = spec?.claimRef;
  if (reference !== undefined) {
    return (
      reference.uid === undefined &&
      reference.name === claim.metadata.name &&
      reference.namespace === claim.metadata.namespace
    );
  }
  if ((spec?.storageClassName ?? "") !== (claim.spec?.storageClassName ?? "")) return false;
  const modes = spec?.accessModes ?? [];
  if (!(claim.spec?.accessModes ?? []).every((mode) => modes.includes(mode))) return false;
  return parseQuantity(spec?.capacity?.["storage"] ?? "0").compare(parseQuantity(requested(claim))) >= 0;
}

function bySize(a: PersistentVolume, b: PersistentVolume): number {
  return parseQuantity(a.spec?.capacity?.["storage"] ?? "0").compare(
    parseQuantity(b.spec?.capacity?.["storage"] ?? "0"),
  );
}

function withClaim(volume: PersistentVolume, claim: PersistentVolumeClaim): PersistentVolume {
  const annotations = { ...volume.metadata.annotations, [boundByController]: "yes" };
  return {
    ...volume,
    metadata: { ...volume.metadata, annotations },
    spec: { ...volume.spec, claimRef: claimReference(claim) },
  };
}

function claimReference({ metadata: { namespace = "", name, uid = "" } }: PersistentVolumeClaim) {
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace, name, uid };
}

/** The name comes from the claim's uid, so that a repeated pass makes no second volume. */
function newVolume(
  claim: PersistentVolumeClaim,
  { metadata, reclaimPolicy, mountOptions }: StorageClass,
): PersistentVolume {
  const name = `pvc-${claim.metadata.uid}`;
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name, annotations: { "pv.kubernetes.io/provisioned-by": localVolumeDriver } },
    spec: {
      capacity: { storage: requested(claim) },
      accessModes: claim.spec?.accessModes ?? ["ReadWriteOnce"],
      claimRef: claimReference(claim),
      persistentVolumeReclaimPolicy: reclaimPolicy ?? "Delete",
      storageClassName: metadata.name,
      volumeMode: claim.spec?.volumeMode ?? "Filesystem",
      ...(mountOptions === undefined ? {} : { mountOptions }),
      csi: { driver: localVolumeDriver, volumeHandle: name },
    },
  };
}

/** One step over a volume. */
export type VolumeAction =
  | { readonly do: "set-phase"; readonly phase: string }
  | { readonly do: "delete-volume" }
  | { readonly do: "release-volume" };

/** Decides what becomes of a volume by the claim it is for. */
export function planVolume(
  volume: PersistentVolume,
  claim: PersistentVolumeClaim | undefined,
): readonly VolumeAction[] {
  const reference = volume.spec?.claimRef;
  const isClaimed =
    reference !== undefined &&
    claim !== undefined &&
    claim.metadata.uid === reference.uid &&
    !isElsewhere(claim, volume);
  if (volume.metadata.deletionTimestamp !== undefined) {
    const isHeld = (volume.metadata.finalizers ?? []).includes(volumeFinalizer);
    return isHeld && !isClaimed ? [{ do: "release-volume" }] : [];
  }
  if (reference?.uid === undefined) return phaseTo(volume, "Available");
  if (isClaimed) return claim?.spec?.volumeName === volume.metadata.name ? phaseTo(volume, "Bound") : [];
  const isOurs = volume.metadata.annotations?.["pv.kubernetes.io/provisioned-by"] === localVolumeDriver;
  if (isOurs && volume.spec?.persistentVolumeReclaimPolicy === "Delete") return [{ do: "delete-volume" }];
  return phaseTo(volume, "Released");
}

function phaseTo({ status }: PersistentVolume, phase: string): VolumeAction[] {
  return status?.phase === phase ? [] : [{ do: "set-phase", phase }];
}
