/** Any JSON value. */
export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };

/** A JSON object. */
export type JsonObject = { [key: string]: JsonValue };

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

/** Exact equality of JSON values; the order of keys does not matter. */
export function jsonEqual(a: JsonValue | undefined, b: JsonValue | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, index) => jsonEqual(item, b[index]));
  }
  if (!isJsonObject(a) || !isJsonObject(b)) return false;
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && jsonEqual(a[key], b[key]))
  );
}
