import { type PersistentVolumeClaim, storageClasses } from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

const defaultAnnotation = "storageclass.kubernetes.io/is-default-class";
/** Older claims named their class here; it counts as named. */
const classAnnotation = "volume.beta.kubernetes.io/storage-class";

/** Gives a claim that names no class the default one; an empty name stays empty, because it asks for no class. */
export class DefaultStorageClass implements Admission {
  readonly name = "DefaultStorageClass";
  readonly #reader: ObjectReader;

  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    return verb === "create" && group === "" && resource === "persistentvolumeclaims" && subresource === "";
  }

  async mutate({ object }: AdmissionAttributes): Promise<void> {
    const claim = object as PersistentVolumeClaim;
    if (claim.spec === undefined || claim.spec.storageClassName !== undefined) return;
    if (claim.metadata.annotations?.[classAnnotation] !== undefined) return;
    const preferred = (await this.#reader.list(storageClasses)).filter(
      ({ metadata }) => metadata.annotations?.[defaultAnnotation] === "true",
    );
    // Newest first, then by name: what Kubernetes does when there are several.
    const [chosen] = preferred.sort(
      (a, b) =>
        (b.metadata.creationTimestamp ?? "").localeCompare(a.metadata.creationTimestamp ?? "") ||
        a.metadata.name.localeCompare(b.metadata.name),
    );
    if (chosen !== undefined) claim.spec.storageClassName = chosen.metadata.name;
  }
}
