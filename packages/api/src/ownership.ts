// Ownership is proven here and nowhere else. Invariant: a reference alone gives no right, because a user who may create an object may write any
// reference into it. A reference is true if an owner of that group, kind, name and uid exists in the same namespace; a right follows from it only
// where the owner also names the child back, in a field that only its controller writes.

import type { Sandbox } from "./kinds.gen.ts";
import type { KubeObject, ObjectMeta, OwnerReference } from "./meta.ts";
import { namespacedKey } from "./object-key.ts";
import { apiVersionOf, parseApiVersion, type Resource, sandboxes } from "./resource.ts";

/** Anything with Kubernetes metadata. */
export interface Owned {
  readonly metadata: ObjectMeta;
}

/** The kind of an owner, whatever version a reference names: references written before an upgrade keep the old one. */
interface GroupKind {
  readonly group: string;
  readonly kind: string;
}

/** What an object is to the one that asks: owned by it, without an owner, or owned by another. */
export type Ownership = "owned" | "unowned" | "other";

/** The reference marked as controller, if there is one. */
export function controllerOf(object: Owned): OwnerReference | undefined {
  return object.metadata.ownerReferences?.find((reference) => reference.controller === true);
}

/** Whether the reference is to that group and kind; an absent one never is. */
export function refersTo(reference: OwnerReference | undefined, { group, kind }: GroupKind): boolean {
  if (reference === undefined) return false;
  return parseApiVersion(reference.apiVersion).group === group && reference.kind === kind;
}

/** Whether `owner`, which exists, controls `object`: same namespace, group, kind, name and uid. A namesake of an earlier life is somebody else. */
export function isControlledBy(object: Owned, kind: GroupKind, owner: Owned): boolean {
  return ownershipOf(object, kind, owner) === "owned";
}

/** What `object` is to an owner that exists. */
export function ownershipOf(object: Owned, kind: GroupKind, owner: Owned): Ownership {
  const reference = controllerOf(object);
  if (reference === undefined) return "unowned";
  const { name, uid, namespace } = owner.metadata;
  const isSame = refersTo(reference, kind) && reference.name === name && reference.uid === uid;
  const isNear = (object.metadata.namespace ?? "") === (namespace ?? "");
  return uid !== undefined && uid !== "" && isSame && isNear ? "owned" : "other";
}

/** The Sandbox that a Pod says it belongs to; proves nothing. */
export function sandboxReferenceOf(pod: Owned): OwnerReference | undefined {
  const reference = controllerOf(pod);
  return refersTo(reference, sandboxes) ? reference : undefined;
}

/** Whether the Sandbox controller has made or adopted this Pod, which is what gives it the Sandbox's layer, address, volumes and routes. */
export function isPodOf(pod: Owned, sandbox: Sandbox): boolean {
  return isControlledBy(pod, sandboxes, sandbox) && isNamedBy(pod, sandbox);
}

/** Whether the Sandbox's status names this Pod. */
export function isNamedBy({ metadata }: Owned, { status }: Sandbox): boolean {
  return metadata.uid !== undefined && metadata.uid !== "" && status?.podUID === metadata.uid;
}

/** What is known of the Sandbox that a Pod says it belongs to. */
export type PodOwner =
  /** The Pod refers to no Sandbox. */
  | { readonly kind: "none" }
  /** Its Sandbox names it back. */
  | { readonly kind: "proven"; readonly sandbox: Sandbox }
  /** It has no right to anything of the Sandbox, and may get one only if that Sandbox comes to name it. */
  | { readonly kind: "unproven"; readonly reference: OwnerReference };

/** Resolves a Pod's reference; `find` looks a Sandbox up by `namespace/name`. */
export function podOwnerOf(pod: Owned, find: (key: string) => Sandbox | undefined): PodOwner {
  const reference = sandboxReferenceOf(pod);
  if (reference === undefined) return { kind: "none" };
  const sandbox = find(namespacedKey(pod.metadata.namespace, reference.name));
  if (sandbox !== undefined && isPodOf(pod, sandbox)) return { kind: "proven", sandbox };
  return { kind: "unproven", reference };
}

/** A controller reference to `owner`, as the garbage collector and the watch handlers expect it; an object of a cache may lack its own kind. */
export function controllerReference(owner: Resource<KubeObject>, { metadata }: Owned): OwnerReference {
  const { name, uid = "" } = metadata;
  return { apiVersion: apiVersionOf(owner), kind: owner.kind, name, uid, controller: true, blockOwnerDeletion: true };
}

/** Adds `reference`, replacing an entry of the same group, kind and name; foreign references stay. */
export function withReference(
  references: readonly OwnerReference[] | undefined,
  reference: OwnerReference,
): OwnerReference[] {
  const { group } = parseApiVersion(reference.apiVersion);
  const isSame = (entry: OwnerReference) =>
    refersTo(entry, { group, kind: reference.kind }) && entry.name === reference.name;
  return [...(references ?? []).filter((entry) => !isSame(entry)), reference];
}
