import { isJsonObject, type JsonObject } from "./json-value.ts";
import { annotationKeys } from "./labels.ts";
import type { ObjectMeta } from "./meta.ts";

/** Metadata with annotations replaced by `change`; an empty result is absent, and the source is not touched. */
export function withAnnotations(
  metadata: ObjectMeta,
  change: (annotations: Record<string, string>) => Record<string, string | undefined>,
): ObjectMeta {
  const { annotations: before, ...rest } = metadata;
  const entries = Object.entries(change({ ...before })).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  if (entries.length === 0 && Object.keys(before ?? {}).length === 0) return metadata;
  return entries.length === 0 ? rest : { ...rest, annotations: Object.fromEntries(entries) };
}

/** The JSON object that an annotation holds; anybody may write annotations, so a malformed one counts as absent. */
export function readState(metadata: ObjectMeta, key: string): JsonObject | undefined {
  const text = metadata.annotations?.[key];
  if (text === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The hub fields that a v1alpha1 view carries along, or undefined where it carries none. */
export function readHubFields(metadata: ObjectMeta): JsonObject | undefined {
  return readState(metadata, annotationKeys.hubFields);
}

/** The JSON object under a key, or an empty one. */
export function objectUnder(state: JsonObject | undefined, key: string): JsonObject {
  const value = state !== undefined && Object.hasOwn(state, key) ? state[key] : undefined;
  return isJsonObject(value) ? value : {};
}
