import { isJsonObject, type JsonObject, type JsonValue, ownValue } from "@agent-sandbox/api";

/** The object below `key`, or undefined when it is absent or of another type. */
export function objectAt(object: JsonObject | undefined, key: string): JsonObject | undefined {
  const value = object === undefined ? undefined : ownValue(object, key);
  return isJsonObject(value) ? value : undefined;
}

/** The string below `key`, or undefined. */
export function stringAt(object: JsonObject | undefined, key: string): string | undefined {
  const value = object === undefined ? undefined : ownValue(object, key);
  return typeof value === "string" ? value : undefined;
}

/** The number below `key`, or undefined. */
export function numberAt(object: JsonObject | undefined, key: string): number | undefined {
  const value = object === undefined ? undefined : ownValue(object, key);
  return typeof value === "number" ? value : undefined;
}

/** The list below `key`, or an empty one. */
export function listAt(object: JsonObject | undefined, key: string): JsonValue[] {
  const value = object === undefined ? undefined : ownValue(object, key);
  return Array.isArray(value) ? value : [];
}

/** A deep copy that shares nothing with its source. */
export function cloneJson<T extends JsonValue | undefined>(value: T): T {
  if (Array.isArray(value)) return value.map((item) => cloneJson(item)) as T;
  if (!isJsonObject(value)) return value;
  const copy: JsonObject = {};
  for (const key of Object.keys(value)) copy[key] = cloneJson(value[key]);
  return copy as T;
}

/** A value as text: strings as they are, anything else as JSON, nothing as the empty text. */
export function textOf(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
