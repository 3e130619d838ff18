import type { Admission, AdmissionAttributes } from "./admission.ts";

/** Holds a claim until no Pod uses it. */
const claimProtectionFinalizer = "kubernetes.io/pvc-protection";
/** Holds a volume until no claim is bound to it. */
const volumeProtectionFinalizer = "kubernetes.io/pv-protection";

/** Volumes and claims in use survive a hasty `delete`: a controller lifts the finalizer when they are free. */
export class StorageProtection implements Admission {
  readonly name = "StorageObjectInUseProtection";

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    if (verb !== "create" || group !== "" || subresource !== "") return false;
    return resource === "persistentvolumeclaims" || resource === "persistentvolumes";
  }

  mutate({ resource, object }: AdmissionAttributes): void {
    if (object === undefined) return;
    const finalizer = resource === "persistentvolumes" ? volumeProtectionFinalizer : claimProtectionFinalizer;
    object.metadata.finalizers = [...new Set([...(object.metadata.finalizers ?? []), finalizer])];
  }
}
