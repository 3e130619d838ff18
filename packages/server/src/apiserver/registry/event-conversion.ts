import { type ApiObject, asJson } from "../object.ts";

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
export function convertEvent(object: ApiObject): ApiObject {
  const toNew = object.apiVersion === "v1";
  const result: ApiObject = { ...object, apiVersion: toNew ? "events.k8s.io/v1" : "v1", kind: "Event" };
  for (const [core, events] of renamed) {
    const [from, to] = toNew ? [core, events] : [events, core];
    const value = asJson(object)[from];
    delete result[from];
    if (value !== undefined) result[to] = value;
  }
  if (toNew) for (const key of optionalParts) if (result[key] === "") delete result[key];
  return result;
}
