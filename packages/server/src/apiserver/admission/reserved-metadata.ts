import type { KubeObject } from "@agent-sandbox/api";
import { mastersGroup, type UserInfo } from "../auth/authenticator.ts";
import { componentUser } from "../auth/components.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** The address of a Sandbox, written by the address allocation alone: who could choose it could take a neighbour's. */
export const addressAnnotation = "agent-sandbox.dev/address";

const reservedAnnotations = [addressAnnotation];

/** Keeps annotations that only the engine may write as the engine wrote them, and says so in a warning. */
export class ReservedMetadata implements Admission {
  readonly name = "ReservedMetadata";

  handles({ verb, object, oldObject, user }: AdmissionAttributes): boolean {
    if (verb !== "create" && verb !== "update") return false;
    return (hasReserved(object) || hasReserved(oldObject)) && !mayWrite(user);
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

function mayWrite(user: UserInfo): boolean {
  return user.username === componentUser("agent-sandbox-standins").username || user.groups.includes(mastersGroup);
}
