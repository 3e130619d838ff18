import type { KubeObject, ObjectMeta, OwnerReference } from "./meta.ts";
import { uidOf } from "./meta.ts";
import { parseApiVersion } from "./resource.ts";

interface Owned {
  readonly metadata: ObjectMeta;
}

/** The reference marked as controller, if there is one. */
export function controllerOf(object: Owned): OwnerReference | undefined {
  return object.metadata.ownerReferences?.find((reference) => reference.controller === true);
}

/** Whether `owner` controls `object`. Only the uid decides: a namesake of an earlier life is somebody else. */
export function isControlledBy(object: Owned, owner: Owned): boolean {
  const { uid } = owner.metadata;
  return uid !== undefined && uid !== "" && controllerOf(object)?.uid === uid;
}

/** Group and kind of a reference; versions are not compared, because old references keep old ones. */
export function groupKindOf(reference: OwnerReference | undefined): { group: string; kind: string } {
  if (reference === undefined) return { group: "", kind: "" };
  return { group: parseApiVersion(reference.apiVersion).group, kind: reference.kind };
}

/** Whether the reference is to that group and kind; an absent one never is. */
export function refersTo(reference: OwnerReference | undefined, wanted: { group: string; kind: string }): boolean {
  if (reference === undefined) return false;
  const { group, kind } = groupKindOf(reference);
  return group === wanted.group && kind === wanted.kind;
}

/** A controller reference to a stored object. */
export function controllerReference(owner: KubeObject): OwnerReference {
  return {
    apiVersion: owner.apiVersion,
    kind: owner.kind,
    name: owner.metadata.name,
    uid: uidOf(owner),
    controller: true,
    blockOwnerDeletion: true,
  };
}

/**
 * The references with `owner` as controller: an entry of the same group, kind and name is replaced, all others stay.
 * Preconditions: no other object is the controller.
 */
export function withControllerReference(references: readonly OwnerReference[], owner: KubeObject): OwnerReference[] {
  const reference = controllerReference(owner);
  const wanted = groupKindOf(reference);
  const isSame = (other: OwnerReference) => refersTo(other, wanted) && other.name === reference.name;
  const foreign = references.find(
    (other) => other.controller === true && !isSame(other) && other.uid !== reference.uid,
  );
  if (foreign !== undefined) throw new Error(`bug: ${foreign.kind} ${foreign.name} is the controller already`);
  const index = references.findIndex(isSame);
  return index < 0 ? [...references, reference] : references.with(index, reference);
}
