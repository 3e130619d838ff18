import { badRequest, isJsonObject, type JsonObject, type JsonValue, tryParseQuantity } from "@agent-sandbox/api";
import { textOf } from "../json/json.ts";
import { formatPath } from "../json/parse-json.ts";
import { fieldSchema, goTypeName, keepsUnknownFields, type Schema } from "./schema.ts";

/** A built-in object as Go would decode it: typed, without nulls and unknown fields. */
export interface DecodedBuiltin {
  /** Paths of fields the kind does not have. */
  readonly unknown: readonly string[];
}

/** Brings a body into the shape of a built-in kind, in place; throws BadRequest for a value of the wrong type. */
export function decodeBuiltin(object: JsonObject, schema: Schema, kind: string, part = kind): DecodedBuiltin {
  const decoder = new BuiltinDecoder(kind, part);
  decoder.object(object, schema);
  return { unknown: decoder.unknown };
}

const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

class BuiltinDecoder {
  readonly unknown: string[] = [];
  readonly #kind: string;
  readonly #path: (string | number)[] = [];
  /** Go's name of the innermost object that is being read. */
  #owner: string;

  constructor(kind: string, part: string) {
    this.#kind = kind;
    this.#owner = part;
  }

  object(object: JsonObject, schema: Schema): void {
    if (schema["x-kubernetes-preserve-unknown-fields"] === true && schema.properties === undefined) return;
    const outer = this.#owner;
    this.#owner = goTypeName(schema)?.name ?? outer;
    for (const key of Object.keys(object)) {
      const child = fieldSchema(schema, key);
      this.#path.push(key);
      if (child === undefined) this.#dropUnknown(object, key, schema);
      else if (object[key] === null || object[key] === undefined) {
        if (!acceptsAnything(child)) delete object[key];
      } else object[key] = this.#value(object[key], child);
      this.#path.pop();
    }
    this.#owner = outer;
  }

  #dropUnknown(object: JsonObject, key: string, schema: Schema): void {
    if (keepsUnknownFields(schema) || acceptsAnything(schema)) return;
    this.unknown.push(formatPath(this.#path));
    delete object[key];
  }

  #value(value: JsonValue, schema: Schema): JsonValue {
    if (schema.format === "quantity") return this.#quantity(value);
    if (!fits(value, schema)) throw this.#wrongType(value, schema);
    if (schema.format === "byte") this.#checkBase64(textOf(value));
    if (Array.isArray(value)) this.#list(value, schema);
    else if (isJsonObject(value)) this.object(value, schema);
    return value;
  }

  #list(list: JsonValue[], schema: Schema): void {
    const items = schema.items;
    if (items === undefined) return;
    for (const [index, item] of list.entries()) {
      this.#path.push(index);
      list[index] = item === null ? zeroOf(items) : this.#value(item, items);
      this.#path.pop();
    }
  }

  #quantity(value: JsonValue): JsonValue {
    if (typeof value !== "string" && typeof value !== "number") throw this.#wrongType(value, { type: "string" });
    const quantity = tryParseQuantity(value);
    if (quantity !== undefined) return quantity.toString();
    throw badRequest(
      `${this.#subject()}: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
    );
  }

  #checkBase64(text: string): void {
    // Line breaks are ignored, as Go ignores them.
    const plain = text.replaceAll(/[\r\n]/g, "");
    if (base64.test(plain)) return;
    const strange = plain.search(/[^A-Za-z0-9+/]/);
    throw badRequest(`${this.#subject()}: illegal base64 data at input byte ${strange < 0 ? plain.length : strange}`);
  }

  #wrongType(value: JsonValue, schema: Schema): Error {
    const actual = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
    return badRequest(
      `${this.#subject()}: json: cannot unmarshal ${actual} into Go struct field ${this.#owner}.${formatPath(this.#path)} of type ${goType(schema)}`,
    );
  }

  #subject(): string {
    return `${this.#kind} in version "v1" cannot be handled as a ${this.#kind}`;
  }
}

function fits(value: JsonValue, schema: Schema): boolean {
  if (schema["x-kubernetes-int-or-string"] === true) return typeof value === "string" || Number.isInteger(value);
  switch (schema.type) {
    case "object":
      return isJsonObject(value);
    case "array":
      return Array.isArray(value);
    case "integer":
      return Number.isInteger(value) && (schema.format !== "int32" || Math.abs(value as number) <= 2 ** 31);
    case undefined:
      return true;
    default:
      return typeof value === schema.type;
  }
}

function acceptsAnything(schema: Schema): boolean {
  return schema.type === undefined && schema.properties === undefined && schema["x-kubernetes-int-or-string"] !== true;
}

function zeroOf(schema: Schema): JsonValue {
  switch (schema.type) {
    case "object":
      return {};
    case "array":
      return [];
    case "string":
      return "";
    case "boolean":
      return false;
    case "integer":
    case "number":
      return 0;
    default:
      return null;
  }
}

function goType(schema: Schema): string {
  switch (schema.type) {
    case "integer":
      return schema.format === "int32" ? "int32" : "int64";
    case "boolean":
      return "bool";
    case "array":
      return `[]${schema.items === undefined ? "" : goType(schema.items)}`;
    case "object": {
      const named = goTypeName(schema);
      if (named !== undefined) return `${named.version}.${named.name}`;
      const values = schema.additionalProperties;
      return typeof values === "object" && values.type === "string" ? "map[string]string" : "map";
    }
    default:
      return schema.type ?? "interface";
  }
}
