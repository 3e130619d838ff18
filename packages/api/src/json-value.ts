/** Any JSON value. */
export type JsonValue = string | number | boolean | null | JsonValue[] | JsonObject;

/** A JSON object; an absent key reads as undefined. */
export interface JsonObject {
  [key: string]: JsonValue | undefined;
}

/** Whether the value is a JSON object, not a list and not null. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value under a key that the object itself has; names like `constructor` are not found by accident. */
export function ownValue(object: JsonObject, key: string): JsonValue | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** A copy with the key set. Defining instead of assigning keeps a key `__proto__` an ordinary key. */
export function withKey(object: JsonObject, key: string, value: JsonValue): JsonObject {
  return defineKey({ ...object }, key, value);
}

/** Sets the key on the object itself, which is returned. */
export function defineKey(object: JsonObject, key: string, value: JsonValue): JsonObject {
  return Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
}

/** A copy without the key. */
export function withoutKey(object: JsonObject, key: string): JsonObject {
  const copy = { ...object };
  delete copy[key];
  return copy;
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
