import { formatTimestamp } from "@agent-sandbox/api";
import type { JsonObject, JsonValue } from "./json/json.ts";

/** One entry of `metadata.managedFields`. */
export type ManagedFields = {
  manager?: string;
  operation?: string;
  apiVersion?: string;
  time?: string;
  fieldsType?: string;
  fieldsV1?: JsonObject;
  subresource?: string;
};

/** A reference to an owner, as garbage collection reads it. */
export type OwnerReference = {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
};

/** `metadata` of any object. Type aliases, not interfaces, so that they are JSON objects to the compiler too. */
export type ObjectMeta = {
  name?: string;
  generateName?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  selfLink?: string;
  labels?: { [key: string]: string };
  annotations?: { [key: string]: string };
  ownerReferences?: OwnerReference[];
  finalizers?: string[];
  managedFields?: ManagedFields[];
};

/** Any object the server stores: the three fields that all kinds share, and the rest as JSON. */
export interface ApiObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  [field: string]: JsonValue | ObjectMeta | undefined;
}

/** Views an object as plain JSON; the same value, another type. */
export function asJson(object: ApiObject): JsonObject {
  return object as JsonObject;
}

/** Views decoded JSON as an object. Precondition: apiVersion, kind and metadata were checked. */
export function asObject(value: JsonObject): ApiObject {
  return value as unknown as ApiObject;
}

/** `group/version`, or the version alone for the core group. */
export function groupVersion({ group, version }: { group: string; version: string }): string {
  return group === "" ? version : `${group}/${version}`;
}

/** Splits an apiVersion; the core group is the empty string. */
export function parseGroupVersion(apiVersion: string): { group: string; version: string } {
  const slash = apiVersion.indexOf("/");
  if (slash < 0) return { group: "", version: apiVersion };
  return { group: apiVersion.slice(0, slash), version: apiVersion.slice(slash + 1) };
}

let lastSecond = -1;
let lastText = "";

/** RFC 3339 with seconds, the format of metav1.Time. Writes of one second share the text. */
export function formatTime(epochMs: number): string {
  const second = Math.floor(epochMs / 1000);
  if (second !== lastSecond) {
    lastText = formatTimestamp(epochMs);
    lastSecond = second;
  }
  return lastText;
}
