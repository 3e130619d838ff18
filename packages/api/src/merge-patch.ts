import { defineKey, isJsonObject, type JsonObject, type JsonValue, ownValue } from "./json-value.ts";

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
