/** Any value that JSON can carry. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

/** A JSON object; an absent key reads as undefined. */
export interface JsonObject {
  [key: string]: JsonValue | undefined;
}

/** Tells a JSON object from every other value. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Own property of an object, or undefined: inherited names such as `constructor` never leak in. */
export function ownValue(object: JsonObject, key: string): JsonValue | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

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

/** Deep equality of two JSON values; the order of keys does not matter, an undefined value is an absent key. */
export function jsonEqual(left: JsonValue | undefined, right: JsonValue | undefined): boolean {
  if (left === right) return true;
  if (Array.isArray(left)) {
    if (!Array.isArray(right) || left.length !== right.length) return false;
    return left.every((item, index) => jsonEqual(item, right[index]));
  }
  if (!isJsonObject(left) || !isJsonObject(right)) return false;
  return sameEntries(left, right);
}

function sameEntries(left: JsonObject, right: JsonObject): boolean {
  let count = 0;
  for (const key of Object.keys(left)) {
    if (left[key] === undefined) continue;
    count++;
    if (!jsonEqual(left[key], ownValue(right, key))) return false;
  }
  for (const key of Object.keys(right)) if (right[key] !== undefined) count--;
  return count === 0;
}

/** A value as text: strings as they are, anything else as JSON, nothing as the empty text. */
export function textOf(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
