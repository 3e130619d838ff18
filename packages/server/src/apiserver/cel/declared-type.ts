import type { Schema } from "../schema/schema.ts";
import { escapeFieldName } from "./cel-value.ts";

/** What a value can be, and how large: the figures that estimates of cost rest on. */
export interface DeclaredType {
  readonly kind: string;
  /** Longest string, most items or entries; zero where a value has no size. */
  readonly elementsMax: number;
  /** Bytes of the shortest JSON of such a value. */
  readonly serializedMin: number;
  readonly element?: DeclaredType;
  readonly fields?: ReadonlyMap<string, DeclaredType>;
}

/** Bytes of a request that Kubernetes reckons with; the same figure as the limit on bodies. */
export const requestMaxBytes = 3 * 1024 * 1024;

const noFields = { elementsMax: 0 };
const stringType: DeclaredType = { kind: "string", elementsMax: 0, serializedMin: 2 };

/** The type of a string with a format of its own; lengths are those of their JSON, in bytes. */
const formats: Readonly<Record<string, DeclaredType>> = {
  duration: { kind: "duration", elementsMax: 32, serializedMin: 3 },
  date: { kind: "timestamp", elementsMax: 12, serializedMin: 12 },
  "date-time": { kind: "timestamp", elementsMax: 32, serializedMin: 21 },
};

/** The type of a schema's values; undefined where rules do not see them. */
export function declaredType(schema: Schema, isResource: boolean): DeclaredType | undefined {
  const lengthMax = schema.maxLength === undefined ? undefined : Math.max(0, schema.maxLength);
  if (schema["x-kubernetes-int-or-string"] === true)
    return {
      kind: "dyn",
      elementsMax: lengthMax === undefined ? requestMaxBytes - 2 : lengthMax * 4,
      serializedMin: 1,
    };
  switch (schema.type) {
    case "array":
      return listType(schema);
    case "object":
      return typeof schema.additionalProperties === "object"
        ? mapType(schema, schema.additionalProperties)
        : objectType(schema, isResource);
    case "string":
      return textType(schema, lengthMax);
    case "boolean":
      return { kind: "bool", ...noFields, serializedMin: 4 };
    case "number":
      return { kind: "double", ...noFields, serializedMin: 1 };
    case "integer":
      return { kind: "int", ...noFields, serializedMin: 1 };
    default:
      return undefined;
  }
}

function listType(schema: Schema): DeclaredType | undefined {
  const element = schema.items === undefined ? undefined : childType(schema.items);
  if (element === undefined) return undefined;
  const elementsMax = schema.maxItems ?? Math.floor((requestMaxBytes - 2) / (element.serializedMin + 1));
  return { kind: "list", elementsMax: Math.max(0, elementsMax), serializedMin: 2, element };
}

function mapType(schema: Schema, values: Schema): DeclaredType | undefined {
  const element = childType(values);
  if (element === undefined) return undefined;
  // Quotes, colon and comma, and the shortest of keys.
  const elementsMax = schema.maxProperties ?? Math.floor((requestMaxBytes - 2) / (element.serializedMin + 6));
  return { kind: "map", elementsMax: Math.max(0, elementsMax), serializedMin: 2, element };
}

function objectType(schema: Schema, isResource: boolean): DeclaredType {
  const required = new Set(schema.required ?? []);
  const fields = new Map<string, DeclaredType>();
  let serializedMin = 2;
  const properties = isResource ? { ...schema.properties, ...resourceFields } : (schema.properties ?? {});
  for (const [name, child] of Object.entries(properties)) {
    const type = childType(child);
    if (type === undefined) continue;
    fields.set(escapeFieldName(name), type);
    if (required.has(name) && child.default === undefined) serializedMin += name.length + type.serializedMin + 4;
  }
  return { kind: "object", ...noFields, serializedMin, fields };
}

const text: Schema = { type: "string" };
/** What rules see of every object, whatever its schema says. */
const resourceFields: Readonly<Record<string, Schema>> = {
  kind: text,
  apiVersion: text,
  metadata: { type: "object", properties: { name: text, generateName: text } },
};

function childType(schema: Schema): DeclaredType | undefined {
  return declaredType(schema, schema["x-kubernetes-embedded-resource"] === true);
}

function textType(schema: Schema, lengthMax: number | undefined): DeclaredType {
  const formatted = formats[schema.format ?? ""];
  if (formatted !== undefined) return formatted;
  if (schema.format === "byte")
    return { kind: "bytes", elementsMax: lengthMax ?? requestMaxBytes - 2, serializedMin: 2 };
  // A character may take four bytes.
  if (lengthMax !== undefined) return { ...stringType, elementsMax: lengthMax * 4 };
  const values = (schema.enum ?? []).filter((value) => typeof value === "string");
  if ((schema.enum ?? []).length === 0) return { ...stringType, elementsMax: requestMaxBytes - 2 };
  return { ...stringType, elementsMax: Math.max(0, ...values.map((value) => Buffer.byteLength(value))) };
}

/** Keys of maps; Kubernetes does not bound them. */
export const keyType: DeclaredType = stringType;
