import type { JsonValue } from "@agent-sandbox/api";

/** One `x-kubernetes-validations` rule. */
export type ValidationRule = {
  rule: string;
  message?: string;
  messageExpression?: string;
  reason?: string;
  fieldPath?: string;
  optionalOldSelf?: boolean;
};

/** A structural schema with every `$ref` replaced by the node it names; a recursive type is a cycle. */
export type Schema = {
  type?: string;
  format?: string;
  description?: string;
  nullable?: boolean;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  required?: string[];
  enum?: JsonValue[];
  default?: JsonValue;
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: boolean;
  exclusiveMaximum?: boolean;
  multipleOf?: number;
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
  minProperties?: number;
  maxProperties?: number;
  allOf?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  not?: Schema;
  "x-kubernetes-preserve-unknown-fields"?: boolean;
  "x-kubernetes-embedded-resource"?: boolean;
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-list-type"?: string;
  "x-kubernetes-list-map-keys"?: string[];
  "x-kubernetes-map-type"?: string;
  "x-kubernetes-validations"?: ValidationRule[];
  "x-kubernetes-patch-strategy"?: string;
  "x-kubernetes-patch-merge-key"?: string;
};

/** What is worth knowing about everything below a schema node; found once per node. */
export interface SchemaFacts {
  /** Whether a rule occurs here or below. */
  readonly hasRules: boolean;
  /** Whether an object with a kind of its own occurs here or below. */
  readonly hasEmbedded: boolean;
  /** Whether a default occurs below. */
  readonly hasDefaults: boolean;
  /** The fields with a default of their own; a pod's schema has hundreds of fields and few of these. */
  readonly defaultedFields: readonly (readonly [string, Schema])[];
}

const goNameKey = Symbol("go");

/** Notes what Go calls the type of a built-in schema; not enumerable, like facts. */
export function nameGoType(schema: Schema, definition: string): void {
  const [version = "", name = ""] = definition.split(".").slice(-2);
  Object.defineProperty(schema, goNameKey, { value: { version, name } });
}

/** What Go calls the type of a built-in schema, where it has a name. */
export function goTypeName(schema: Schema): { readonly version: string; readonly name: string } | undefined {
  return (schema as { [goNameKey]?: { version: string; name: string } })[goNameKey];
}

const factsKey = Symbol("facts");
const noFacts: SchemaFacts = { hasRules: false, hasEmbedded: false, hasDefaults: false, defaultedFields: [] };

/**
 * The facts of a node, kept on the node itself: a WeakMap of this size costs every request more than the questions it
 * answers. The property cannot be enumerated, so that copies of a node that is changed afterwards have facts of their own.
 */
export function factsOf(schema: Schema): SchemaFacts {
  const node = schema as Schema & { [factsKey]?: SchemaFacts };
  return node[factsKey] ?? learnFacts(node);
}

function learnFacts(node: Schema & { [factsKey]?: SchemaFacts }): SchemaFacts {
  // A recursive type meets itself here and adds nothing.
  Object.defineProperty(node, factsKey, { value: noFacts, writable: true });
  const children = Object.values(node.properties ?? {});
  if (typeof node.additionalProperties === "object") children.push(node.additionalProperties);
  if (node.items !== undefined) children.push(node.items);
  const facts = {
    hasRules: (node["x-kubernetes-validations"] ?? []).length > 0 || children.some((child) => factsOf(child).hasRules),
    hasEmbedded:
      node["x-kubernetes-embedded-resource"] === true || children.some((child) => factsOf(child).hasEmbedded),
    hasDefaults: children.some((child) => child.default !== undefined || factsOf(child).hasDefaults),
    defaultedFields: Object.entries(node.properties ?? {}).filter(([, child]) => child.default !== undefined),
  };
  node[factsKey] = facts;
  return facts;
}

/** The schema of a field of an object schema, also through `additionalProperties`; undefined when the field is unknown. */
export function fieldSchema(schema: Schema, key: string): Schema | undefined {
  const properties = schema.properties;
  if (properties !== undefined && Object.hasOwn(properties, key)) return properties[key];
  return typeof schema.additionalProperties === "object" ? schema.additionalProperties : undefined;
}

/** Whether fields that the schema does not name are kept. */
export function keepsUnknownFields(schema: Schema): boolean {
  return schema["x-kubernetes-preserve-unknown-fields"] === true || schema.additionalProperties === true;
}

/** The key fields of an associative list, or undefined for every other list. */
export function listMapKeys(schema: Schema): readonly string[] | undefined {
  return schema["x-kubernetes-list-type"] === "map" ? schema["x-kubernetes-list-map-keys"] : undefined;
}

/** Whether the value is owned and merged as a whole. */
export function isAtomic(schema: Schema | undefined, value: JsonValue | undefined): boolean {
  if (Array.isArray(value)) {
    const listType = schema?.["x-kubernetes-list-type"];
    return listType !== "map" && listType !== "set";
  }
  return schema?.["x-kubernetes-map-type"] === "atomic";
}
