import { isJsonObject, type JsonObject, type JsonValue, jsonEqual } from "@agent-sandbox/api";
import {
  duplicate,
  type FieldError,
  invalid,
  notSupported,
  required,
  tooLong,
  tooMany,
  typeInvalid,
} from "./field-error.ts";
import { matchesFormat } from "./formats.ts";
import { goRegExp } from "./go-regexp.ts";
import type { Schema } from "./schema.ts";

/** All ways in which the value breaks its schema, in Kubernetes' words. CEL rules are checked elsewhere. */
export function validateSchema(value: JsonValue, schema: Schema, path = ""): FieldError[] {
  const errors: FieldError[] = [];
  check(value, schema, path, errors);
  return errors;
}

function check(value: JsonValue, schema: Schema, path: string, errors: FieldError[]): void {
  if (!checkType(value, schema, path, errors)) return;
  if (value === null) return;
  if (schema.enum !== undefined) checkEnum(value, schema, path, errors);
  if (typeof value === "string") checkString(value, schema, path, errors);
  else if (typeof value === "number") checkNumber(value, schema, path, errors);
  else if (Array.isArray(value)) checkList(value, schema, path, errors);
  else if (typeof value === "object") checkObject(value, schema, path, errors);
  checkJunctors(value, schema, path, errors);
}

function typeName(value: JsonValue): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
}

function checkType(value: JsonValue, schema: Schema, path: string, errors: FieldError[]): boolean {
  const actual = typeName(value);
  if (schema["x-kubernetes-int-or-string"] === true) {
    if (actual === "integer" || actual === "string" || (actual === "null" && schema.nullable === true)) return true;
    errors.push(typeInvalid(path, actual, `${path} in body must be of type integer,string: ${JSON.stringify(actual)}`));
    return false;
  }
  const wanted = schema.type;
  if (wanted === undefined || wanted === "" || wanted === actual) return true;
  if (actual === "null" && schema.nullable === true) return true;
  if (wanted === "number" && actual === "integer") return true;
  errors.push(typeInvalid(path, actual, `${path} in body must be of type ${wanted}: ${JSON.stringify(actual)}`));
  if (wanted === "integer" && actual === "number")
    errors.push(invalid("<nil>", "", `Checked value must be of type integer (default format) in ${path}`));
  return false;
}

function checkEnum(value: JsonValue, schema: Schema, path: string, errors: FieldError[]): void {
  const allowed = schema.enum ?? [];
  if (allowed.some((candidate) => jsonEqual(candidate, value))) return;
  const texts = allowed.map((candidate) => (typeof candidate === "string" ? candidate : JSON.stringify(candidate)));
  errors.push(notSupported(path, value, texts));
}

function checkString(value: string, schema: Schema, path: string, errors: FieldError[]): void {
  const { minLength, maxLength, pattern, format } = schema;
  if (maxLength !== undefined && codePoints(value) > maxLength) errors.push(tooLong(path, maxLength));
  if (minLength !== undefined && codePoints(value) < minLength) {
    errors.push(invalid(path, value, `${path} in body should be at least ${minLength} chars long`));
  }
  if (pattern !== undefined && goRegExp(pattern)?.test(value) !== true) {
    errors.push(invalid(path, value, `${path} in body should match '${pattern}'`));
  }
  if (format !== undefined && !matchesFormat(format, value)) {
    errors.push(typeInvalid(path, value, `${path} in body must be of type ${format}: ${JSON.stringify(value)}`));
  }
}

function codePoints(text: string): number {
  let count = text.length;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code >= 0xd800 && code < 0xdc00) count--;
  }
  return count;
}

const integerLimits: Readonly<Record<string, number>> = { int32: 2 ** 31 };

function checkNumber(value: number, schema: Schema, path: string, errors: FieldError[]): void {
  const { minimum, maximum, multipleOf } = schema;
  if (multipleOf !== undefined) checkFactor({ value, factor: multipleOf, path }, errors);
  const limit = integerLimits[schema.format ?? ""];
  if (limit !== undefined && (value >= limit || value < -limit)) {
    errors.push(
      invalid(path, value, `${path} in body must be of type ${schema.format ?? ""}: ${JSON.stringify(String(value))}`),
    );
  }
  if (maximum !== undefined && (schema.exclusiveMaximum === true ? value >= maximum : value > maximum)) {
    const bound = schema.exclusiveMaximum === true ? "less than" : "less than or equal to";
    errors.push(invalid(path, value, `${path} in body should be ${bound} ${maximum}`));
  }
  if (minimum !== undefined && (schema.exclusiveMinimum === true ? value <= minimum : value < minimum)) {
    const bound = schema.exclusiveMinimum === true ? "greater than" : "greater than or equal to";
    errors.push(invalid(path, value, `${path} in body should be ${bound} ${minimum}`));
  }
}

/** An integer is divided as integers are in Go: a factor below one is none, and Kubernetes says so. */
function checkFactor(
  { value, factor, path }: { value: number; factor: number; path: string },
  errors: FieldError[],
): void {
  const divisor = Number.isInteger(value) ? Math.trunc(factor) : factor;
  if (divisor <= 0)
    errors.push(invalid(path, value, `factor MultipleOf declared for ${path} must be positive: ${divisor}`));
  else if (!Number.isInteger(value / divisor))
    errors.push(invalid(path, value, `${path} in body should be a multiple of ${factor}`));
}

function checkList(value: JsonValue[], schema: Schema, path: string, errors: FieldError[]): void {
  const { minItems, maxItems, items } = schema;
  if (minItems !== undefined && value.length < minItems) {
    errors.push(invalid(path, value.length, `${path} in body should have at least ${minItems} items`));
  }
  if (maxItems !== undefined && value.length > maxItems) errors.push(tooMany(path, value.length, maxItems));
  if (items !== undefined) for (const [index, item] of value.entries()) check(item, items, `${path}[${index}]`, errors);
  if (schema["x-kubernetes-list-type"] === "set" || schema.uniqueItems === true) checkSet(value, path, errors);
  if (schema["x-kubernetes-list-type"] === "map") checkMapKeys(value, schema, path, errors);
}

function checkSet(value: JsonValue[], path: string, errors: FieldError[]): void {
  const seen = new Set<string>();
  for (const [index, item] of value.entries()) {
    const text = JSON.stringify(item);
    if (seen.has(text)) errors.push(duplicate(`${path}[${index}]`, item));
    seen.add(text);
  }
}

function checkMapKeys(value: JsonValue[], schema: Schema, path: string, errors: FieldError[]): void {
  const keys = schema["x-kubernetes-list-map-keys"] ?? [];
  const [only] = keys;
  const seen = new Set<string>();
  for (const [index, item] of value.entries()) {
    if (!isJsonObject(item)) continue;
    // Most lists have one key that is a string: no object is made to compare it.
    const single = keys.length === 1 && only !== undefined ? item[only] : undefined;
    if (typeof single === "string" && !seen.has(single)) {
      seen.add(single);
      continue;
    }
    if (typeof single === "string") seen.add(JSON.stringify({ [only ?? ""]: single }));
    const found = Object.fromEntries(keys.filter((key) => Object.hasOwn(item, key)).map((key) => [key, item[key]]));
    const text = JSON.stringify(found);
    if (seen.has(text)) errors.push(duplicate(`${path}[${index}]`, found as JsonObject));
    seen.add(text);
  }
}

function checkObject(value: JsonObject, schema: Schema, path: string, errors: FieldError[]): void {
  const { minProperties, maxProperties, properties } = schema;
  const keys = Object.keys(value);
  if (minProperties !== undefined && keys.length < minProperties) {
    errors.push(invalid(path, value, `${path} in body should have at least ${minProperties} properties`));
  }
  if (maxProperties !== undefined && keys.length > maxProperties)
    errors.push(tooMany(path, keys.length, maxProperties));
  for (const key of keys) {
    const known = properties !== undefined && Object.hasOwn(properties, key) ? properties[key] : undefined;
    const child = known ?? (typeof schema.additionalProperties === "object" ? schema.additionalProperties : undefined);
    const item = value[key];
    if (child !== undefined && item !== undefined) check(item, child, childPath(path, key), errors);
  }
  for (const key of schema.required ?? []) {
    if (!Object.hasOwn(value, key) || value[key] === undefined) errors.push(required(childPath(path, key)));
  }
}

function childPath(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

function checkJunctors(value: JsonValue, schema: Schema, path: string, errors: FieldError[]): void {
  const { anyOf, oneOf, allOf, not } = schema;
  if (anyOf === undefined && oneOf === undefined && allOf === undefined && not === undefined) return;
  const subject = JSON.stringify(path);
  if (schema.anyOf !== undefined) {
    const results = schema.anyOf.map((branch) => validateSchema(value, branch, path));
    if (results.every((result) => result.length > 0)) {
      errors.push(invalid(path, "", `${subject} must validate at least one schema (anyOf)`), ...fewest(results));
    }
  }
  if (schema.oneOf !== undefined) checkOneOf({ value, branches: schema.oneOf, path }, errors);
  if (schema.allOf !== undefined) {
    const results = schema.allOf.map((branch) => validateSchema(value, branch, path));
    const valid = results.filter((result) => result.length === 0).length;
    errors.push(...results.flat());
    if (valid !== results.length) {
      const none = valid === 0 ? ". None validated" : "";
      errors.push(invalid(path, "", `${subject} must validate all the schemas (allOf)${none}`));
    }
  }
  if (schema.not !== undefined && validateSchema(value, schema.not, path).length === 0) {
    errors.push(invalid(path, "", `${subject} must not validate the schema (not)`));
  }
}

interface OneOf {
  readonly value: JsonValue;
  readonly branches: readonly Schema[];
  readonly path: string;
}

function checkOneOf({ value, branches, path }: OneOf, errors: FieldError[]): void {
  const results = branches.map((branch) => validateSchema(value, branch, path));
  const valid = results.filter((result) => result.length === 0).length;
  if (valid === 1) return;
  const found = valid === 0 ? "Found none valid" : `Found ${valid} valid alternatives`;
  errors.push(invalid("<nil>", "", `${JSON.stringify(path)} must validate one and only one schema (oneOf). ${found}`));
  if (valid === 0) errors.push(...fewest(results));
}

/** The branch that came closest explains best. */
function fewest(results: readonly FieldError[][]): FieldError[] {
  return results.reduce<FieldError[]>((best, next) => (next.length < best.length ? next : best), results[0] ?? []);
}
