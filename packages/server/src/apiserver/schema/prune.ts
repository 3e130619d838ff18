import { isJsonObject, type JsonObject, type JsonValue } from "@agent-sandbox/api";
import { formatPath } from "../json/parse-json.ts";
import { fieldSchema, keepsUnknownFields, type Schema } from "./schema.ts";

/** Removes, in place, every field that the schema does not name; returns the paths of what was removed. */
export function prune(value: JsonValue | undefined, schema: Schema): string[] {
  const removed: string[] = [];
  walk({ value, schema, path: [], removed, inEmbedded: false });
  return removed.sort();
}

interface Step {
  readonly value: JsonValue | undefined;
  readonly schema: Schema;
  readonly path: (string | number)[];
  readonly removed: string[];
  /** True inside a field whose unknown fields are kept: nothing below is removed unless a nested schema says more. */
  readonly inEmbedded: boolean;
}

function walk(step: Step): void {
  const { value, schema } = step;
  if (Array.isArray(value)) {
    if (schema.items !== undefined)
      for (const [index, item] of value.entries()) descend(step, index, item, schema.items);
  } else if (isJsonObject(value)) walkObject(step, value);
}

const embeddedFields = new Set(["apiVersion", "kind", "metadata"]);

/** What the metadata of an object inside an object may have. */
const embeddedMetadata: Schema = Object.fromEntries([
  [
    "properties",
    Object.fromEntries(
      [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
      ].map((field) => [field, { "x-kubernetes-preserve-unknown-fields": true }]),
    ),
  ],
  ["type", "object"],
]);

function walkObject(step: Step, value: JsonObject): void {
  const { schema, path, removed } = step;
  const keeps = keepsUnknownFields(schema) || isFreeForm(schema);
  const isEmbedded = schema["x-kubernetes-embedded-resource"] === true;
  for (const key of Object.keys(value)) {
    const child = fieldSchema(schema, key);
    if (child !== undefined) descend(step, key, value[key], child);
    else if (isEmbedded && key === "metadata") descend(step, key, value[key], embeddedMetadata);
    else if (!keeps && !(isEmbedded && embeddedFields.has(key))) {
      removed.push(formatPath([...path, key]));
      delete value[key];
    }
  }
}

function descend(step: Step, key: string | number, value: JsonValue | undefined, schema: Schema): void {
  if (typeof value !== "object" || value === null) return;
  step.path.push(key);
  walk({ ...step, value, schema });
  step.path.pop();
}

/** A schema without any statement about fields or type accepts anything, as `{}` does for built-in raw JSON. */
function isFreeForm(schema: Schema): boolean {
  return schema.properties === undefined && schema.additionalProperties === undefined && schema.type === undefined;
}
