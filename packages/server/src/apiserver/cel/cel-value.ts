import { isJsonObject, type JsonValue } from "../json/json.ts";
import { fieldSchema, type Schema } from "../schema/schema.ts";

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

/** A field name as rules spell it: `a-b` is `a__dash__b`, `namespace` is `__namespace__`. */
export function escapeFieldName(name: string): string {
  if (reserved.has(name)) return `__${name}__`;
  return name
    .replaceAll("__", "__underscores__")
    .replaceAll(".", "__dot__")
    .replaceAll("-", "__dash__")
    .replaceAll("/", "__slash__");
}

/** A JSON value as a rule sees it: integers are exact, fields are named as the language needs them. */
export function celValue(value: JsonValue | undefined, schema: Schema | undefined): unknown {
  if (value === undefined || value === null) return null;
  if (typeof value === "number") return isInteger(value, schema) ? BigInt(value) : value;
  if (typeof value === "string") return celString(value, schema?.format);
  if (Array.isArray(value)) return value.map((item) => celValue(item, schema?.items));
  if (!isJsonObject(value)) return value;
  const isMap = schema?.properties === undefined;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined && item !== null);
  return Object.fromEntries(
    entries.map(([key, item]) => [
      isMap ? key : escapeFieldName(key),
      celValue(item, schema === undefined ? undefined : fieldSchema(schema, key)),
    ]),
  );
}

function isInteger(value: number, schema: Schema | undefined): boolean {
  return Number.isSafeInteger(value) && schema?.type !== "number";
}

function celString(value: string, format: string | undefined): unknown {
  if (format === "date-time" || format === "date") {
    const date = new Date(value);
    return Number.isNaN(date.getTime()) ? value : date;
  }
  return value;
}
