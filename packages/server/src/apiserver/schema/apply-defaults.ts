import { isJsonObject, type JsonObject, type JsonValue } from "@agent-sandbox/api";
import { cloneJson } from "../json/json.ts";
import { factsOf, fieldSchema, type Schema } from "./schema.ts";

/** Fills in the schema's defaults, in place. A null where null is not allowed counts as absent. */
export function applyDefaults(value: JsonValue | undefined, schema: Schema): void {
  if (!factsOf(schema).hasDefaults) return;
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
  for (const [key, child] of factsOf(schema).defaultedFields) {
    const present = Object.hasOwn(value, key) ? value[key] : undefined;
    if (present === undefined || (present === null && child.nullable !== true)) value[key] = cloneJson(child.default);
  }
  for (const key of Object.keys(value)) {
    const child = fieldSchema(schema, key);
    if (child !== undefined) applyDefaults(value[key], child);
  }
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
