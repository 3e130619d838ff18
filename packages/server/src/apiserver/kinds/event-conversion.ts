import { asJson, type KubeObject } from "@agent-sandbox/api";

/** Core fields and their names in events.k8s.io; both groups read and write the same rows. */
const renamed: readonly (readonly [core: string, events: string])[] = [
  ["involvedObject", "regarding"],
  ["message", "note"],
  ["reportingComponent", "reportingController"],
  ["source", "deprecatedSource"],
  ["firstTimestamp", "deprecatedFirstTimestamp"],
  ["lastTimestamp", "deprecatedLastTimestamp"],
  ["count", "deprecatedCount"],
];

/** Parts that the newer group leaves out where they are empty. */
const optionalParts = ["reportingController", "reportingInstance"];

/** Turns a core event into an events.k8s.io one or back, by what the object says it is. */
export function convertEvent(object: KubeObject): KubeObject {
  const toNew = object.apiVersion === "v1";
  const result: KubeObject = { ...object, apiVersion: toNew ? "events.k8s.io/v1" : "v1", kind: "Event" };
  for (const [core, events] of renamed) {
    const [from, to] = toNew ? [core, events] : [events, core];
    const value = asJson(object)[from];
    delete asJson(result)[from];
    if (value !== undefined) asJson(result)[to] = value;
  }
  if (toNew) for (const key of optionalParts) if (asJson(result)[key] === "") delete asJson(result)[key];
  return result;
}
