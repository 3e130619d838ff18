import { Quantity } from "@agent-sandbox/api";

/** `"...".format([...])` of the language's string extension: %s %d %f %e %x %X %o %b %%. */
export function formatText(template: string, values: readonly unknown[]): string {
  let next = 0;
  return template.replace(/%(?:\.(\d+))?([sdfexXob%])/g, (_all, precision: string | undefined, verb: string) => {
    if (verb === "%") return "%";
    if (next >= values.length) throw new Error("index out of range in format arguments");
    return formatValue(values[next++], verb, precision === undefined ? 6 : Number(precision));
  });
}

function formatValue(value: unknown, verb: string, precision: number): string {
  switch (verb) {
    case "d":
      return `${value as bigint}`;
    case "f":
      return Number(value).toFixed(precision);
    case "e":
      return Number(value).toExponential(precision);
    case "x":
      return radix(value, 16);
    case "X":
      return radix(value, 16).toUpperCase();
    case "o":
      return radix(value, 8);
    case "b":
      return radix(value, 2);
    default:
      return formatString(value);
  }
}

function radix(value: unknown, base: number): string {
  if (typeof value === "bigint") return value.toString(base);
  return typeof value === "string" ? Buffer.from(value).toString("hex") : Number(value).toString(base);
}

function formatString(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return `[${value.map(formatString).join(", ")}]`;
  if (value instanceof Date) return value.toISOString().replace(".000Z", "Z");
  if (value instanceof Map) return formatString(Object.fromEntries(value));
  if (typeof value !== "object") return `${value as string | number | bigint | boolean}`;
  if (value instanceof Quantity) return value.toString();
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, item]) => `${key}: ${formatString(item)}`).join(", ")}}`;
}
