import type { JsonObject } from "./json-value.ts";

/**
 * Metadata that every stored object carries. An empty `name` means that `generateName` makes one; a client may leave the
 * field out of what it sends, and the API server names the object before it stores it.
 * This and what it is made of are type aliases, not interfaces, so that they are JSON objects to the compiler too.
 */
export type ObjectMeta = {
  name: string;
  generateName?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: OwnerReference[];
  managedFields?: ManagedFieldsEntry[];
  selfLink?: string;
};

/** A reference from an object to one that it must not outlive. */
export type OwnerReference = {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
};

/** The fields that one manager set through one subresource. */
export type ManagedFieldsEntry = {
  manager?: string;
  operation?: string;
  apiVersion?: string;
  time?: string;
  fieldsType?: string;
  fieldsV1?: JsonObject;
  subresource?: string;
};

/** One observation about an object, upserted by `type`. */
export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason: string;
  message: string;
  lastTransitionTime: string;
  observedGeneration?: number;
}

/** Metadata of a list. */
export interface ListMeta {
  resourceVersion?: string;
  continue?: string;
  remainingItemCount?: number;
  selfLink?: string;
}

/** Any object of the API: the three fields that all kinds share. `asJson` reads the fields of a kind that is not known. */
export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
}

/** Views an object as plain JSON; the same value, another type. */
export function asJson(object: KubeObject): JsonObject {
  // An interface has no index signature, so the compiler does not see that every field of an object is JSON.
  return object as unknown as JsonObject;
}

/** Views JSON as an object, of any kind or of the one that the caller names. Precondition: apiVersion, kind and metadata were checked. */
export function asObject<T extends KubeObject = KubeObject>(value: JsonObject): T {
  // The reverse of `asJson`: what was checked at the edge is believed inside.
  return value as unknown as T;
}

/** A page of objects at one resourceVersion. */
export interface KubeList<T extends KubeObject> {
  apiVersion: string;
  kind: string;
  metadata: ListMeta;
  items: T[];
}

/** One frame of a watch; ERROR carries a Status instead of an object. */
export type WatchEvent<T extends KubeObject> =
  | { type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK"; object: T }
  | { type: "ERROR"; object: StatusObject };

/** The wire form of an outcome, as error answers and ERROR watch frames carry it. */
export interface StatusObject {
  apiVersion: "v1";
  kind: "Status";
  metadata: ListMeta;
  status: "Success" | "Failure";
  message?: string;
  reason?: string;
  code?: number;
  details?: ErrorDetails;
}

/** What a failed request was about. */
export interface ErrorDetails {
  name?: string;
  group?: string;
  kind?: string;
  uid?: string;
  causes?: ErrorCause[];
  retryAfterSeconds?: number;
}

/** One reason among several why a request failed. */
export interface ErrorCause {
  /** Machine-readable, for example `FieldValueInvalid`. */
  reason?: string;
  message?: string;
  /** Path of the field in the Kubernetes manner, for example `spec.containers[0].name`. */
  field?: string;
}

/** The uid of an object that the API server returned; one without a uid is a bug of the caller. */
export function uidOf(object: { readonly metadata: ObjectMeta; readonly kind?: string }): string {
  const { uid, name } = object.metadata;
  if (uid === undefined || uid === "") throw new Error(`bug: ${object.kind ?? "object"} ${name} was never stored`);
  return uid;
}
