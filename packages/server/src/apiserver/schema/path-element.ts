import { isJsonObject, type JsonObject, type JsonValue } from "@agent-sandbox/api";
import { listMapKeys, type Schema } from "./schema.ts";

/**
 * One step of a field path in the spelling of FieldsV1: `f:<field>`, `k:{"name":"a"}` for an entry of an associative
 * list, `v:<json>` for a member of a set, `i:<index>` otherwise.
 */
export type PathElement = string;

/** Bound: users name labels as they like, so when it is full it starts anew. */
const fieldElementsMax = 4_096;
const fieldElements = new Map<string, PathElement>();

/** The path element of a field; the same string each time, because as the key of an object a fresh one costs a search. */
export function fieldElement(name: string): PathElement {
  const known = fieldElements.get(name);
  if (known !== undefined) return known;
  if (fieldElements.size >= fieldElementsMax) fieldElements.clear();
  const element = `f:${name}`;
  fieldElements.set(name, element);
  return element;
}

/** The path element of a list item; undefined when its keys are missing. */
export function itemElement(item: JsonValue, schema: Schema): PathElement | undefined {
  const keys = listMapKeys(schema);
  if (keys === undefined) return `v:${JSON.stringify(item)}`;
  if (!isJsonObject(item)) return undefined;
  const found: JsonObject = {};
  for (const key of [...keys].sort()) {
    const value = item[key] ?? schema.items?.properties?.[key]?.default;
    if (value !== undefined && value !== null) found[key] = value;
  }
  return Object.keys(found).length === 0 ? undefined : `k:${JSON.stringify(found)}`;
}

/** How Kubernetes writes a path element in a conflict: `.field`, `[name="a"]`, `[="x"]`, `[0]`. */
export function elementText(element: PathElement): string {
  const body = element.slice(2);
  switch (element[0]) {
    case "f":
      return `.${body}`;
    case "k": {
      const keys = JSON.parse(body) as JsonObject;
      return `[${Object.entries(keys)
        .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
        .join(",")}]`;
    }
    case "v":
      return `[=${body}]`;
    default:
      return `[${body}]`;
  }
}
