import type { ObjectMeta, OwnerReference } from "@agent-sandbox/api";
import { adoptableLabel, nameHashLabel } from "./well-known.ts";

/** Anything with Kubernetes metadata. */
export interface Owned {
  readonly metadata: ObjectMeta;
}

/** Relation of an object to the one that asks, decided by controller UID alone. */
export type Ownership = "owned" | "unowned" | "other";

/** The owner reference with `controller: true`, if any. */
export function controllerOf(object: Owned): OwnerReference | undefined {
  return object.metadata.ownerReferences?.find((reference) => reference.controller === true);
}

/** Compares the controller's UID; kind, name and version prove nothing. */
export function ownershipOf(object: Owned, ownerUid: string | undefined): Ownership {
  const controller = controllerOf(object);
  if (controller === undefined) return "unowned";
  return ownerUid !== undefined && controller.uid === ownerUid ? "owned" : "other";
}

/** True when the controller reference carries this owner's UID. */
export function isControlledBy(object: Owned, owner: Owned): boolean {
  return ownershipOf(object, owner.metadata.uid) === "owned";
}

/** Matches group and kind, never the version: references written before an upgrade name the old one. */
export function referenceIs(reference: OwnerReference | undefined, group: string, kind: string): boolean {
  if (reference === undefined) return false;
  return groupOfApiVersion(reference.apiVersion) === group && reference.kind === kind;
}

/** `apps/v1` gives `apps`; the core group is the empty string. */
export function groupOfApiVersion(apiVersion: string): string {
  const slash = apiVersion.indexOf("/");
  return slash < 0 ? "" : apiVersion.slice(0, slash);
}

/** A controller reference to `owner`, as the garbage collector and the watch handlers expect it. */
export function controllerReferenceTo(owner: {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
}): OwnerReference {
  return {
    apiVersion: owner.apiVersion,
    kind: owner.kind,
    name: owner.metadata.name,
    uid: owner.metadata.uid ?? "",
    controller: true,
    blockOwnerDeletion: true,
  };
}

/** Adds `reference`, replacing an entry of the same group, kind and name; foreign references stay. */
export function withReference(
  references: readonly OwnerReference[] | undefined,
  reference: OwnerReference,
): OwnerReference[] {
  const others = (references ?? []).filter(
    (entry) =>
      !(referenceIs(entry, groupOfApiVersion(reference.apiVersion), reference.kind) && entry.name === reference.name),
  );
  return [...others, reference];
}

/** Why an unowned object may not be adopted, or undefined when it may. */
export function adoptionRefusal(noun: "pod" | "service" | "PVC", object: Owned, hash: string): string | undefined {
  const labels = object.metadata.labels ?? {};
  if (labels[adoptableLabel] === "true" || labels[nameHashLabel] === hash) return undefined;
  return `cannot adopt unowned ${noun} "${object.metadata.name}": missing required pool authorization label ("${adoptableLabel}") or sandbox tracking label ("${nameHashLabel}")`;
}

/** The text for an object that somebody else controls. */
export function foreignOwnerMessage(noun: "pod" | "service" | "PVC", object: Owned, sandboxName: string): string {
  const owner = controllerOf(object);
  return `${noun} "${object.metadata.name}" is owned by ${owner?.kind}/${owner?.name} (UID: ${owner?.uid}), not by sandbox "${sandboxName}"`;
}
