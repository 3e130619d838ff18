import {
  forbidden,
  type JsonValue,
  jsonEqual,
  type KubeObject,
  type OwnerReference,
  parseApiVersion,
  type Resource,
} from "@agent-sandbox/api";
import type { Authorizer } from "../auth/authorizer.ts";
import type { ObjectReader } from "../auth/object-reader.ts";
import { invalid, invalidObject } from "../schema/field-error.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** Finds the served resource of a kind. */
export type OwnerKinds = (group: string, version: string, kind: string) => Resource<KubeObject> | undefined;

/** What the rule asks and reads. */
export interface OwnerReferencesParts {
  readonly authorizer: Authorizer;
  readonly reader: ObjectReader;
  readonly ownerKinds: OwnerKinds;
}

/**
 * Who changes the owners of an object must be allowed to delete it. A reference that names a controller, or
 * blocks the deletion of the owner, needs the right to write that owner's finalizers, and names an owner that exists: Kubernetes' plugin
 * of this name asks neither for `controller` nor whether the owner is there.
 */
export class OwnerReferencesPermission implements Admission {
  readonly name = "OwnerReferencesPermissionEnforcement";
  readonly #parts: OwnerReferencesParts;

  constructor(parts: OwnerReferencesParts) {
    this.#parts = parts;
  }

  handles({ verb, subresource, object, oldObject }: AdmissionAttributes): boolean {
    if ((verb !== "create" && verb !== "update") || subresource !== "") return false;
    return !jsonEqual(json(ownersOf(object)), json(ownersOf(oldObject)));
  }

  async validate(attributes: AdmissionAttributes): Promise<void> {
    if (attributes.verb === "update" && !this.#may(attributes, "delete", resourceOf(attributes)))
      throw refuse(attributes, "cannot set an ownerRef on a resource you can't delete");
    const before = ownersOf(attributes.oldObject).map(json);
    for (const [index, owner] of ownersOf(attributes.object).entries()) {
      const isAsBefore = before.some((old) => jsonEqual(old, json(owner)));
      if (isGuarded(owner) && !isAsBefore) await this.#check(attributes, owner, index);
    }
  }

  /** The right comes first: a caller without it does not learn whether the owner exists. */
  async #check(attributes: AdmissionAttributes, owner: OwnerReference, index: number): Promise<void> {
    const { group, version } = parseApiVersion(owner.apiVersion);
    const kind = this.#parts.ownerKinds(group, version, owner.kind);
    const flag = owner.blockOwnerDeletion === true ? "blockOwnerDeletion" : "controller";
    if (kind === undefined)
      throw refuse(attributes, `cannot set ${flag} for ${owner.apiVersion} ${owner.kind}, which is not served`);
    const namespace = kind.namespaced ? attributes.namespace : "";
    const target = { group, version, resource: kind.resource, subresource: "finalizers", namespace, name: owner.name };
    if (!this.#may(attributes, "update", target)) {
      const why = `cannot set ${flag} if an ownerReference refers to a resource you can't set finalizers on`;
      throw refuse(attributes, `${why}: ${owner.kind} "${owner.name}"`);
    }
    const found = isOutOfReach(attributes, kind)
      ? undefined
      : await this.#parts.reader.get(kind, { ...(kind.namespaced ? { namespace } : {}), name: owner.name });
    if (found?.metadata.uid !== owner.uid) throw noOwner(attributes, owner, index);
  }

  #may({ user }: AdmissionAttributes, verb: string, target: Target): boolean {
    return this.#parts.authorizer.authorize({ kind: "resource", verb, ...target }, user).verdict === "allow";
  }
}

interface Target {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
}

function resourceOf({ group, version, resource, subresource, namespace, name }: AdmissionAttributes): Target {
  return { group, version, resource, subresource, namespace, name };
}

function ownersOf(object: KubeObject | undefined): readonly OwnerReference[] {
  return object?.metadata.ownerReferences ?? [];
}

function json(value: OwnerReference | readonly OwnerReference[]): JsonValue {
  return value as JsonValue;
}

/** A plain reference only ever shortens the life of the object that carries it. */
function isGuarded({ controller, blockOwnerDeletion }: OwnerReference): boolean {
  return controller === true || blockOwnerDeletion === true;
}

/** What has no namespace cannot belong to something that has one. */
function isOutOfReach({ namespace }: AdmissionAttributes, kind: Resource<KubeObject>): boolean {
  return kind.namespaced && namespace === "";
}

function refuse({ group, resource, name }: AdmissionAttributes, why: string): Error {
  return forbidden({ group, resource, name }, why);
}

function noOwner({ group, name, namespace, object }: AdmissionAttributes, owner: OwnerReference, index: number): Error {
  const where = namespace === "" ? "at the cluster scope" : `in the namespace "${namespace}"`;
  const detail = `there is no ${owner.kind} "${owner.name}" with uid "${owner.uid}" ${where}`;
  const error = invalid(`metadata.ownerReferences[${index}]`, owner.name, detail);
  return invalidObject({ group, kind: object?.kind ?? "", name }, [error]);
}
