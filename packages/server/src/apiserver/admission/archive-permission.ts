import {
  asJson,
  forbidden,
  isJsonObject,
  type JsonObject,
  jsonEqual,
  type KubeObject,
  ownGroup,
  type Resource,
  type SandboxArchive,
  sandboxArchives,
  sandboxes,
  sandboxSnapshots,
  withoutKey,
} from "@agent-sandbox/api";
import type { Authorizer } from "../auth/authorizer.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/**
 * Who archives a Sandbox deletes it and copies its memory, and who recalls one makes it: each needs the right to do so himself, because the controller that
 * does it has all of them. `patch` without `update` is the right to recall. `deploy/kubernetes/archives.yaml` says the same to clusters.
 */
export class ArchivePermission implements Admission {
  readonly name = "ArchivePermission";
  readonly #authorizer: Authorizer;

  constructor(authorizer: Authorizer) {
    this.#authorizer = authorizer;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    if (group !== ownGroup || resource !== sandboxArchives.resource || subresource !== "") return false;
    return verb === "create" || verb === "update";
  }

  validate(attributes: AdmissionAttributes): void {
    const { verb, object, oldObject } = attributes;
    if (verb === "create") {
      this.#need(attributes, "delete", sandboxes);
      this.#need(attributes, "create", sandboxSnapshots);
    } else if (!this.#may(attributes, "update", sandboxArchives) && !isSameButRecall(oldObject, object)) {
      throw refuse(attributes, `without "update" a patch may change spec.recall only`);
    }
    if (!isRecalled(object) || isRecalled(oldObject)) return;
    if (!this.#may(attributes, "recall", sandboxArchives)) this.#need(attributes, "create", sandboxes);
  }

  #need(attributes: AdmissionAttributes, verb: string, target: Resource<KubeObject>): void {
    if (this.#may(attributes, verb, target)) return;
    throw refuse(attributes, `this needs the right to "${verb}" ${target.resource} of ${target.group}`);
  }

  /** The Sandbox has the archive's name; the name of a snapshot is not known before it is made. */
  #may({ user, namespace, name }: AdmissionAttributes, verb: string, target: Resource<KubeObject>): boolean {
    const { group, version, resource } = target;
    const named = target.resource === sandboxSnapshots.resource ? "" : name;
    const asked = {
      kind: "resource",
      verb,
      group,
      version,
      resource,
      subresource: "",
      namespace,
      name: named,
    } as const;
    return this.#authorizer.authorize(asked, user).verdict === "allow";
  }
}

function isRecalled(object: KubeObject | undefined): boolean {
  return (object as Partial<Pick<SandboxArchive, "spec">> | undefined)?.spec?.recall === true;
}

/** What the server itself writes with every change does not count. */
function isSameButRecall(old: KubeObject | undefined, next: KubeObject | undefined): boolean {
  return jsonEqual(withoutRecall(old), withoutRecall(next));
}

function withoutRecall(object: KubeObject | undefined): JsonObject {
  if (object === undefined) return {};
  const fields = asJson(object);
  const { managedFields: _managed, resourceVersion: _version, generation: _generation, ...metadata } = object.metadata;
  const spec = isJsonObject(fields["spec"]) ? withoutKey(fields["spec"], "recall") : {};
  return { ...fields, metadata, spec };
}

function refuse({ group, resource, name }: AdmissionAttributes, why: string): Error {
  return forbidden({ group, resource, name }, why);
}
