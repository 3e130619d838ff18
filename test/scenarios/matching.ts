/** Fields of a step or of a result, as YAML and JSON have them. */
export type Fields = Record<string, unknown>;

/** The first difference between what is expected and what is there, in words; undefined where there is none. */
export function mismatch(expected: unknown, actual: unknown, path: string): string | undefined {
  if (!isFields(expected)) {
    const isSame = JSON.stringify(expected) === JSON.stringify(actual);
    return isSame ? undefined : `${path} is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`;
  }
  const { contains, matches } = expected;
  if (contains !== undefined) {
    const isThere = Array.isArray(actual)
      ? actual.includes(contains)
      : JSON.stringify(actual).includes(inJson(contains));
    return isThere ? undefined : `${path} is ${JSON.stringify(actual)}, without ${JSON.stringify(contains)}`;
  }
  if (typeof matches === "string") {
    return new RegExp(matches).test(JSON.stringify(actual))
      ? undefined
      : `${path} ${JSON.stringify(actual)} !~ ${matches}`;
  }
  for (const [key, value] of Object.entries(expected)) {
    if (!isFields(actual) || !(key in actual)) return `${path} has no ${key}`;
    const difference = mismatch(value, actual[key], `${path}.${key}`);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

function inJson(value: unknown): string {
  return JSON.stringify(value).replace(/^"|"$/g, "");
}

/** A field as text; empty where it is absent or no scalar. */
export function text(fields: Fields, key: string): string {
  const value = fields[key];
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Replaces `${name.field}` in every text below a value. */
export function substitute<T>(value: T, kept: ReadonlyMap<string, Fields>): T {
  if (typeof value === "string") {
    return value.replace(/\$\{([a-z-]+)(?:\.([A-Za-z]+))?\}/g, (whole, name: string, field = "") =>
      kept.has(name) ? text(kept.get(name) ?? {}, field as string) : whole,
    ) as T;
  }
  if (Array.isArray(value)) return value.map((inner: unknown) => substitute(inner, kept)) as T;
  if (!isFields(value)) return value;
  const entries = Object.entries(value).map(([key, inner]) => [substitute(key, kept), substitute(inner, kept)]);
  return Object.fromEntries(entries) as T;
}
