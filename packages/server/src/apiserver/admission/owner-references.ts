import { forbidden, type OwnerReference, parseApiVersion } from "@agent-sandbox/api";
import type { Authorizer } from "../auth/authorizer.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** Finds the plural of a kind, for example through the served resources. */
export type PluralOf = (group: string, version: string, kind: string) => string | undefined;

/** Who blocks an owner's deletion must be allowed to write that owner's finalizers. */
export class OwnerReferencesPermission implements Admission {
  readonly name = "OwnerReferencesPermissionEnforcement";
  readonly #authorizer: Authorizer;
  readonly #pluralOf: PluralOf;

  constructor(authorizer: Authorizer, pluralOf: PluralOf) {
    this.#authorizer = authorizer;
    this.#pluralOf = pluralOf;
  }

  handles({ verb, subresource, object }: AdmissionAttributes): boolean {
    return (
      (verb === "create" || verb === "update") && subresource === "" && object?.metadata.ownerReferences !== undefined
    );
  }

  validate(attributes: AdmissionAttributes): void {
    const before = new Set(
      (attributes.oldObject?.metadata.ownerReferences ?? []).filter(isBlocking).map(({ uid }) => uid),
    );
    const added = (attributes.object?.metadata.ownerReferences ?? []).filter(
      (owner) => isBlocking(owner) && !before.has(owner.uid),
    );
    for (const owner of added) {
      if (this.#mayBlock(owner, attributes)) continue;
      const why =
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: ";
      const { group, resource, name } = attributes;
      throw forbidden({ group, resource, name }, `${why}${owner.kind} "${owner.name}"`);
    }
  }

  #mayBlock(owner: OwnerReference, { namespace, user }: AdmissionAttributes): boolean {
    const { group, version } = parseApiVersion(owner.apiVersion);
    const resource = this.#pluralOf(group, version, owner.kind);
    // A kind that is not served cannot be deleted here, so that there is nothing to block.
    if (resource === undefined) return true;
    const attributes = {
      kind: "resource",
      verb: "update",
      group,
      version,
      resource,
      subresource: "finalizers",
      namespace,
      name: owner.name,
    } as const;
    return this.#authorizer.authorize(attributes, user).verdict === "allow";
  }
}

function isBlocking(owner: OwnerReference): boolean {
  return owner.blockOwnerDeletion === true;
}
