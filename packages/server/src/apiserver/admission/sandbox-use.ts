import {
  annotationKeys,
  asJson,
  coreGroup,
  forbidden,
  isJsonObject,
  type JsonObject,
  jsonEqual,
  type KubeObject,
} from "@agent-sandbox/api";
import type { Authorizer } from "../auth/authorizer.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** What a user who may not `update` a Sandbox may do with it; each is a verb on `sandboxes` in a role. */
export type SandboxUse = "suspend" | "resume" | "extend";

/** The field of each use; `deploy/kubernetes/sandbox-use.yaml` says the same to clusters. */
const usesByField: Readonly<Record<string, (next: JsonObject) => SandboxUse>> = {
  "spec.operatingMode": modeChange,
  // What v1alpha1 has instead of the mode.
  "spec.replicas": modeChange,
  "spec.wakePolicy": () => "suspend",
  [`metadata.annotations.${annotationKeys.suspendedAt}`]: () => "suspend",
  // Activity wakes a sleeping sandbox and keeps it awake.
  [`metadata.annotations.${annotationKeys.lastActivityAt}`]: () => "resume",
  // Who may wake it may also wake it without its saved memory.
  [`metadata.annotations.${annotationKeys.coldStart}`]: () => "resume",
  "spec.shutdownTime": () => "extend",
  "spec.shutdownPolicy": () => "extend",
};

/** What the server itself writes with every change. */
const ownFields = new Set(["metadata.managedFields", "metadata.resourceVersion", "metadata.generation"]);

/**
 * `patch` without `update` is the right to use a Sandbox, not to say what runs in it: such a caller changes the fields that
 * suspend, resume and extend it, each with its verb. Router and nodes hold no more than that either.
 */
export class SandboxUsePermission implements Admission {
  readonly name = "SandboxUse";
  readonly #authorizer: Authorizer;

  constructor(authorizer: Authorizer) {
    this.#authorizer = authorizer;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    return verb === "update" && group === coreGroup && resource === "sandboxes" && subresource === "";
  }

  validate(attributes: AdmissionAttributes): void {
    if (this.#may(attributes, "update")) return;
    const next = fieldsOf(attributes.object);
    for (const field of changedFields(fieldsOf(attributes.oldObject), next)) {
      const use = Object.hasOwn(usesByField, field) ? usesByField[field]?.(next) : undefined;
      if (use === undefined)
        throw refuse(attributes, `without "update" a patch may change how a Sandbox runs only, not ${field}`);
      if (!this.#may(attributes, use)) throw refuse(attributes, `changing ${field} needs the verb "${use}"`);
    }
  }

  #may({ user, group, version, resource, namespace, name }: AdmissionAttributes, verb: string): boolean {
    const asked = { kind: "resource", verb, group, version, resource, subresource: "", namespace, name } as const;
    return this.#authorizer.authorize(asked, user).verdict === "allow";
  }
}

function modeChange(next: JsonObject): SandboxUse {
  const { operatingMode, replicas } = objectAt(next, "spec");
  return operatingMode === "Suspended" || replicas === 0 ? "suspend" : "resume";
}

/** Names spec and metadata field by field and annotations one by one, because uses are told apart at that depth. */
function changedFields(old: JsonObject, next: JsonObject): string[] {
  const parts = ["metadata", "spec"] as const;
  const fields = [
    ...changedKeys(old, next).filter((key) => !parts.some((part) => part === key)),
    ...parts.flatMap((part) => changedKeys(objectAt(old, part), objectAt(next, part)).map((key) => `${part}.${key}`)),
  ];
  const notes = (object: JsonObject) => objectAt(objectAt(object, "metadata"), "annotations");
  return [
    ...fields.filter((field) => field !== "metadata.annotations" && !ownFields.has(field)),
    ...changedKeys(notes(old), notes(next)).map((key) => `metadata.annotations.${key}`),
  ];
}

function changedKeys(old: JsonObject, next: JsonObject): string[] {
  return [...new Set([...Object.keys(old), ...Object.keys(next)])].filter((key) => !jsonEqual(old[key], next[key]));
}

function objectAt(object: JsonObject, key: string): JsonObject {
  const value = object[key];
  return isJsonObject(value) ? value : {};
}

function fieldsOf(object: KubeObject | undefined): JsonObject {
  return object === undefined ? {} : asJson(object);
}

function refuse({ group, resource, name }: AdmissionAttributes, why: string): Error {
  return forbidden({ group, resource, name }, why);
}
