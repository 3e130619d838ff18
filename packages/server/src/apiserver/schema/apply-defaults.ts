import { cloneJson, isJsonObject, type JsonObject, type JsonValue } from "../json/json.ts";
import { fieldSchema, type Schema } from "./schema.ts";

/** Fills in the schema's defaults, in place. A null where null is not allowed counts as absent. */
export function applyDefaults(value: JsonValue | undefined, schema: Schema): void {
  if (!hasDefaults(schema)) return;
  if (Array.isArray(value)) {
    if (schema.items === undefined) return;
    for (const [index, item] of value.entries()) {
      if (item === null && schema.items.nullable !== true && schema.items.default !== undefined) {
        value[index] = cloneJson(schema.items.default);
      }
      applyDefaults(value[index], schema.items);
    }
  } else if (isJsonObject(value)) defaultObject(value, schema);
}

function defaultObject(value: JsonObject, schema: Schema): void {
  for (const [key, child] of defaultedFields(schema)) {
    const present = Object.hasOwn(value, key) ? value[key] : undefined;
    if (present === undefined || (present === null && child.nullable !== true)) value[key] = cloneJson(child.default);
  }
  for (const key of Object.keys(value)) {
    const child = fieldSchema(schema, key);
    if (child !== undefined) applyDefaults(value[key], child);
  }
}

const knownFields = new WeakMap<Schema, [string, Schema][]>();

/** The fields with a default of their own; a pod's schema has hundreds of fields and few of these. */
function defaultedFields(schema: Schema): [string, Schema][] {
  const known = knownFields.get(schema);
  if (known !== undefined) return known;
  const fields = Object.entries(schema.properties ?? {}).filter(([, child]) => child.default !== undefined);
  knownFields.set(schema, fields);
  return fields;
}

/** Drops, in place, nulls of fields that may not be null and have no default, as Kubernetes does when it decodes. */
export function dropNulls(value: JsonValue | undefined, schema: Schema): void {
  if (Array.isArray(value)) {
    if (schema.items !== undefined) for (const item of value) dropNulls(item, schema.items);
    return;
  }
  if (!isJsonObject(value)) return;
  for (const key of Object.keys(value)) {
    const child = fieldSchema(schema, key);
    if (child === undefined) continue;
    if (value[key] === null && child.nullable !== true && child.default === undefined) delete value[key];
    else dropNulls(value[key], child);
  }
}

const knownDefaults = new WeakMap<Schema, boolean>();

/** Whether a default occurs anywhere below; most of a pod's schema has none and is skipped. */
function hasDefaults(schema: Schema): boolean {
  const known = knownDefaults.get(schema);
  if (known !== undefined) return known;
  knownDefaults.set(schema, false);
  const children = Object.values(schema.properties ?? {});
  if (typeof schema.additionalProperties === "object") children.push(schema.additionalProperties);
  if (schema.items !== undefined) children.push(schema.items);
  const found = children.some((child) => child.default !== undefined || hasDefaults(child));
  knownDefaults.set(schema, found);
  return found;
}
