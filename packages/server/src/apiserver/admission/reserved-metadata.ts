import type { KubeObject } from "@agent-sandbox/api";
import { annotationKeys } from "@agent-sandbox/api";
import type { Admission, AdmissionAttributes } from "./admission.ts";

const reservedAnnotations = [annotationKeys.address];

/**
 * Keeps annotations that only admission itself writes as they were written, and says so in a warning. It holds for
 * administrators too: an exported object that is applied again would otherwise bring an address that has an owner.
 */
export class ReservedMetadata implements Admission {
  readonly name = "ReservedMetadata";

  handles({ verb, object, oldObject }: AdmissionAttributes): boolean {
    if (verb !== "create" && verb !== "update") return false;
    return hasReserved(object) || hasReserved(oldObject);
  }

  mutate({ object, oldObject, warn }: AdmissionAttributes): void {
    if (object === undefined) return;
    for (const key of reservedAnnotations) {
      const before = oldObject?.metadata.annotations?.[key];
      const wanted = object.metadata.annotations?.[key];
      if (before === wanted) continue;
      warn(`annotation "${key}" is written by the engine; the given value is ignored`);
      const { [key]: _dropped, ...rest } = object.metadata.annotations ?? {};
      object.metadata.annotations = before === undefined ? rest : { ...rest, [key]: before };
    }
  }
}

function hasReserved(object: KubeObject | undefined): boolean {
  return reservedAnnotations.some((key) => object?.metadata.annotations?.[key] !== undefined);
}
