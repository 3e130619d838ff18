import type { JsonObject, JsonValue } from "@agent-sandbox/api";
import { Duration } from "@marcbachmann/cel-js/evaluator";
import { fieldSchema, type Schema } from "../schema/schema.ts";
import type { Projection } from "./projection.ts";

/** Words of the language that are escaped when they are field names. */
const reserved = new Set([
  "true",
  "false",
  "null",
  "in",
  "as",
  "break",
  "const",
  "continue",
  "else",
  "for",
  "function",
  "if",
  "import",
  "let",
  "loop",
  "package",
  "namespace",
  "return",
  "var",
  "void",
  "while",
]);

const plainName = /^[A-Za-z0-9]+$/;

/** A field name as rules spell it: `a-b` is `a__dash__b`, `namespace` is `__namespace__`. */
export function escapeFieldName(name: string): string {
  if (plainName.test(name)) return reserved.has(name) ? `__${name}__` : name;
  if (reserved.has(name)) return `__${name}__`;
  return name
    .replaceAll("__", "__underscores__")
    .replaceAll(".", "__dot__")
    .replaceAll("-", "__dash__")
    .replaceAll("/", "__slash__");
}

/** Converted containers, so that nested rules of one object convert each part once. Collected with the object. */
export type Converted = WeakMap<object, unknown>;

/** A JSON value as a rule sees it: integers are exact, fields are named as the language needs them. */
export function celValue(value: JsonValue | undefined, schema: Schema | undefined, converted: Converted): unknown {
  if (value === undefined || value === null) return null;
  if (typeof value === "number") return isInteger(value, schema) ? BigInt(value) : value;
  if (typeof value === "string") return celString(value, schema?.format);
  if (typeof value !== "object") return value;
  const known = converted.get(value);
  if (known !== undefined) return known;
  const result = Array.isArray(value)
    ? value.map((item) => celValue(item, schema?.items, converted))
    : celObject(value, schema, converted);
  converted.set(value, result);
  return result;
}

function celObject(value: JsonObject, schema: Schema | undefined, converted: Converted): Record<string, unknown> {
  const isMap = schema?.properties === undefined;
  const result: Record<string, unknown> = {};
  for (const key of Object.keys(value)) {
    const item = value[key];
    if (item === undefined || item === null) continue;
    const child = schema === undefined ? undefined : fieldSchema(schema, key);
    result[isMap ? key : escapeFieldName(key)] = celValue(item, child, converted);
  }
  return result;
}

/** What of a value to convert, and with what. */
export interface Selection {
  readonly schema: Schema | undefined;
  readonly projection: Projection;
  readonly converted: Converted;
}

/** Like `celValue`, for a rule that reaches only some fields. */
export function celSelection(value: JsonValue | undefined, { schema, projection, converted }: Selection): unknown {
  const isWhole = projection === true || typeof value !== "object" || value === null || Array.isArray(value);
  if (isWhole) return celValue(value, schema, converted);
  const isMap = schema?.properties === undefined;
  const result: Record<string, unknown> = {};
  for (const key of Object.keys(value)) {
    const name = isMap ? key : escapeFieldName(key);
    const below = projection.get(name);
    const item = value[key];
    if (below === undefined || item === undefined || item === null) continue;
    const child = schema === undefined ? undefined : fieldSchema(schema, key);
    result[name] = celSelection(item, { schema: child, projection: below, converted });
  }
  return result;
}

function isInteger(value: number, schema: Schema | undefined): boolean {
  return Number.isSafeInteger(value) && schema?.type !== "number";
}

function celString(value: string, format: string | undefined): unknown {
  if (format === "date-time" || format === "date") {
    const date = new Date(value);
    return Number.isNaN(date.getTime()) ? value : date;
  }
  return format === "duration" ? celDuration(value) : value;
}

const durationUnits: Readonly<Record<string, bigint>> = {
  h: 3_600_000_000_000n,
  m: 60_000_000_000n,
  s: 1_000_000_000n,
  ms: 1_000_000n,
  us: 1_000n,
  µs: 1_000n,
  ns: 1n,
};

/** A duration in Go's notation; a text that is none stays one, because the schema has refused it already. */
function celDuration(value: string): unknown {
  const parts = [...value.matchAll(/(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|ns)/g)];
  if (parts.length === 0 || parts.map(([text]) => text).join("") !== value.replace(/^[+-]/, "")) return value;
  const nanos = parts.reduce((total, [, amount = "", unit = ""]) => {
    const [whole = "", fraction = ""] = amount.split(".");
    const scale = durationUnits[unit] ?? 0n;
    const below = fraction === "" ? 0n : (BigInt(fraction) * scale) / 10n ** BigInt(fraction.length);
    return total + BigInt(whole === "" ? "0" : whole) * scale + below;
  }, 0n);
  const signed = value.startsWith("-") ? -nanos : nanos;
  return new Duration(signed / 1_000_000_000n, Number(signed % 1_000_000_000n));
}
