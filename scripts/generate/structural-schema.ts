import type { Schema } from "./schema.ts";

const types = new Set(["array", "boolean", "integer", "number", "object", "string"]);
const forbiddenKeys = ["$ref", "definitions", "dependencies", "deprecated", "discriminator", "id", "patternProperties"];
/** Inside allOf, anyOf, oneOf and not a structural schema may only restrict values, never describe structure. */
const forbiddenInLogic = ["additionalProperties", "default", "description", "nullable", "title", "type"];

/** Every reason why kube-apiserver would not take the schema as structural, as `path: reason`. */
export function structuralProblems(schema: Schema, path = ""): string[] {
  return [...ownProblems(schema, path), ...listProblems(schema, path), ...childProblems(schema, path)].map((text) =>
    text.startsWith(":") ? `(root)${text}` : text,
  );
}

function ownProblems(schema: Schema, path: string): string[] {
  const problems: string[] = [];
  const free = schema["x-kubernetes-int-or-string"] === true || schema["x-kubernetes-preserve-unknown-fields"] === true;
  if (schema.type === undefined && !free) problems.push(`${path}: must have a type`);
  if (schema.type !== undefined && !types.has(schema.type)) problems.push(`${path}: ${schema.type} is no type`);
  if (schema["x-kubernetes-int-or-string"] === true && schema.type !== undefined) {
    problems.push(`${path}: int-or-string must not have a type`);
  }
  for (const key of forbiddenKeys) if (key in schema) problems.push(`${path}: ${key} is forbidden`);
  if (schema.properties !== undefined && schema.additionalProperties !== undefined) {
    problems.push(`${path}: properties and additionalProperties exclude each other`);
  }
  if (schema.properties !== undefined && schema.type !== "object")
    problems.push(`${path}: only objects have properties`);
  if (schema.type === "array" && schema.items === undefined) problems.push(`${path}: items are required`);
  for (const name of schema.required ?? []) {
    if (schema.properties?.[name] === undefined) problems.push(`${path}: required ${name} is no property`);
  }
  for (const rule of schema["x-kubernetes-validations"] ?? []) {
    if (typeof rule.rule !== "string" || rule.rule === "") problems.push(`${path}: a validation needs a rule`);
  }
  if (schema.default !== undefined && !fitsType(schema.default, schema)) problems.push(`${path}: default does not fit`);
  return problems;
}

function fitsType(value: unknown, schema: Schema): boolean {
  if (schema.enum !== undefined && !schema.enum.includes(value)) return false;
  if (schema.type === "integer") return Number.isInteger(value);
  if (schema.type === "array") return Array.isArray(value);
  return schema.type === undefined || typeof value === schema.type;
}

/** Keys of a list map must be there in every item: required, or with a default. */
function listProblems(schema: Schema, path: string): string[] {
  const keys = schema["x-kubernetes-list-map-keys"];
  const isMap = schema["x-kubernetes-list-type"] === "map";
  if (isMap !== (keys !== undefined)) return [`${path}: list type map and map keys need each other`];
  if (schema["x-kubernetes-list-type"] !== undefined && schema.type !== "array")
    return [`${path}: list type on no list`];
  if (schema["x-kubernetes-map-type"] !== undefined && schema.type !== "object") return [`${path}: map type on no map`];
  const item = schema.items;
  return (keys ?? []).flatMap((key) => {
    const property = item?.properties?.[key];
    if (property === undefined) return [`${path}: map key ${key} is no property of the items`];
    const present = item?.required?.includes(key) === true || property.default !== undefined;
    return present ? [] : [`${path}: map key ${key} is neither required nor defaulted`];
  });
}

function childProblems(schema: Schema, path: string): string[] {
  const named = Object.entries(schema.properties ?? {}).flatMap(([name, child]) =>
    structuralProblems(child, `${path}.${name}`),
  );
  const items = schema.items === undefined ? [] : structuralProblems(schema.items, `${path}[*]`);
  const values =
    schema.additionalProperties === undefined ? [] : structuralProblems(schema.additionalProperties, `${path}{*}`);
  return [...named, ...items, ...values, ...logicProblems(schema, path)];
}

function logicProblems(schema: Schema, path: string): string[] {
  const intOrString = schema["x-kubernetes-int-or-string"] === true;
  const nested = [
    ...(schema.allOf ?? []),
    ...(schema.anyOf ?? []),
    ...(schema.oneOf ?? []),
    ...(schema.not ? [schema.not] : []),
  ];
  return nested.flatMap((child) =>
    forbiddenInLogic
      .filter((key) => key in child && !(intOrString && key === "type"))
      .map((key) => `${path}: ${key} is forbidden inside allOf, anyOf, oneOf and not`),
  );
}
