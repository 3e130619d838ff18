import { defineKey, isJsonObject, type JsonObject, type JsonValue, jsonEqual, ownValue } from "./json-value.ts";

/** Applies an RFC 7386 merge patch to a copy: null removes, objects merge, everything else replaces. */
export function mergePatch(target: JsonValue | undefined, patch: JsonValue): JsonValue {
  if (!isJsonObject(patch)) return patch;
  const base = isJsonObject(target) ? target : {};
  const merged: JsonObject = { ...base };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else if (value !== undefined) defineKey(merged, key, mergePatch(ownValue(base, key), value));
  }
  return merged;
}

/** The smallest merge patch that turns `from` into `to`, or undefined where there is nothing to do. */
export function createMergePatch(from: JsonObject, to: JsonObject): JsonObject | undefined {
  const patch: JsonObject = {};
  for (const key of Object.keys(from)) if (!Object.hasOwn(to, key)) defineKey(patch, key, null);
  for (const [key, value] of Object.entries(to)) {
    const before = ownValue(from, key);
    if (jsonEqual(before, value)) continue;
    const difference = isJsonObject(before) && isJsonObject(value) ? createMergePatch(before, value) : value;
    if (difference !== undefined) defineKey(patch, key, difference);
  }
  return Object.keys(patch).length === 0 ? undefined : patch;
}
