import { isJsonObject, type JsonObject, type JsonValue, jsonEqual } from "@agent-sandbox/api";
import { fieldElement, itemElement, type PathElement } from "../schema/path-element.ts";
import { fieldSchema, isAtomic, type Schema } from "../schema/schema.ts";
import { FieldSet } from "./field-set.ts";

/** The paths that an applied configuration owns: its leaves, and the entries of its maps and associative lists. */
export function fieldsOf(object: JsonObject, schema: Schema | undefined): FieldSet {
  const set = new FieldSet();
  collectMap(object, schema, set);
  return set;
}

/** FieldsV1 of everything in a fresh object; the same as comparing it with nothing, without the sets in between. */
export function fieldsOfFresh(object: JsonObject, schema: Schema | undefined, isBuiltin: boolean): JsonObject {
  const fields: JsonObject = {};
  for (const key of Object.keys(object).sort()) {
    const value = object[key];
    if (value === undefined) continue;
    const child = schema === undefined ? undefined : fieldSchema(schema, key);
    // Every object has metadata, so no manager owns the map itself.
    if (key === "metadata" && isJsonObject(value)) {
      const below = freshMap(value, child, {});
      if (Object.keys(below).length > 0) fields["f:metadata"] = below;
    } else if (isBuiltin && isJsonObject(value) && child?.properties !== undefined && !isAtomic(child, value)) {
      fields[fieldElement(key)] = withoutList(freshMap(value, child, {}), "f:containers");
    } else fields[fieldElement(key)] = freshFields(value, child);
  }
  return fields;
}

/** Go's zero value of a built-in kind has these parts already, so no manager owns the maps themselves. */
function withoutList(fields: JsonObject, name: string): JsonObject {
  const list = fields[name];
  if (isJsonObject(list)) delete list["."];
  return fields;
}

function freshFields(value: JsonValue, schema: Schema | undefined): JsonObject {
  if (typeof value !== "object" || value === null || isAtomic(schema, value)) return {};
  if (!Array.isArray(value)) return Object.keys(value).length === 0 ? {} : freshMap(value, schema, { ".": {} });
  const items = byElement(value, schema ?? {});
  if (items.size === 0) return {};
  const fields: JsonObject = { ".": {} };
  for (const element of [...items.keys()].sort())
    fields[element] = freshFields(items.get(element) ?? null, schema?.items);
  return fields;
}

function freshMap(object: JsonObject, schema: Schema | undefined, fields: JsonObject): JsonObject {
  for (const key of Object.keys(object).sort()) {
    const value = object[key];
    if (value === undefined) continue;
    fields[fieldElement(key)] = freshFields(value, schema === undefined ? undefined : fieldSchema(schema, key));
  }
  return fields;
}

function collect(value: JsonValue, schema: Schema | undefined, at: { set: FieldSet; element: PathElement }): void {
  const { set, element } = at;
  const isContainer = typeof value === "object" && value !== null;
  if (!isContainer || isAtomic(schema, value)) set.members.add(element);
  else if (Array.isArray(value)) collectList(value, schema ?? {}, set.child(element));
  else if (Object.keys(value).length === 0) set.members.add(element);
  else collectMap(value, schema, set.child(element));
}

function collectMap(object: JsonObject, schema: Schema | undefined, set: FieldSet): void {
  for (const [key, value] of Object.entries(object)) {
    if (value === undefined) continue;
    const element = fieldElement(key);
    const isField = schema?.properties !== undefined && Object.hasOwn(schema.properties, key);
    if (!isField) set.members.add(element);
    collect(value, schema === undefined ? undefined : fieldSchema(schema, key), { set, element });
  }
}

function collectList(list: JsonValue[], schema: Schema, set: FieldSet): void {
  for (const item of list) {
    const element = itemElement(item, schema);
    if (element === undefined) continue;
    set.members.add(element);
    if (isJsonObject(item) && element.startsWith("k:")) collectMap(item, schema.items, set.child(element));
  }
}

/** What changed between two objects. */
class Comparison {
  readonly added = new FieldSet();
  readonly modified = new FieldSet();
  readonly removed = new FieldSet();

  get isSame(): boolean {
    return this.added.isEmpty && this.modified.isEmpty && this.removed.isEmpty;
  }
}

/** Compares two objects of one kind, path by path. */
export function compareObjects(before: JsonObject, after: JsonObject, schema: Schema | undefined): Comparison {
  const result = new Comparison();
  compareMaps(before, after, schema, result);
  return result;
}

type Side = "added" | "removed";

/** The three sets below one path element; made only where something differs, so that equal parts cost nothing. */
function below(result: Comparison, element: PathElement): Comparison {
  const child = new Comparison();
  for (const side of ["added", "modified", "removed"] as const) {
    const known = result[side].children.get(element);
    if (known === undefined) result[side].children.set(element, child[side]);
    else Object.assign(child, { [side]: known });
  }
  return child;
}

interface Pair {
  readonly before: JsonValue | undefined;
  readonly after: JsonValue | undefined;
  readonly schema: Schema | undefined;
}

function compareValues({ before, after, schema }: Pair, result: Comparison, element: PathElement): void {
  if (before === after) return;
  if (before === undefined) return addSide({ value: after ?? null, schema, side: "added" }, result, element);
  if (after === undefined) return addSide({ value: before, schema, side: "removed" }, result, element);
  if (isJsonObject(before) && isJsonObject(after) && !isAtomic(schema, after)) {
    if (!jsonEqual(before, after)) compareMaps(before, after, schema, below(result, element));
  } else if (Array.isArray(before) && Array.isArray(after) && !isAtomic(schema, after)) {
    if (!jsonEqual(before, after)) compareLists(before, after, schema ?? {}, below(result, element));
  } else if (!jsonEqual(before, after)) result.modified.members.add(element);
}

function compareMaps(before: JsonObject, after: JsonObject, schema: Schema | undefined, result: Comparison): void {
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const child = schema === undefined ? undefined : fieldSchema(schema, key);
    compareValues({ before: before[key], after: after[key], schema: child }, result, fieldElement(key));
  }
}

function compareLists(before: JsonValue[], after: JsonValue[], schema: Schema, result: Comparison): void {
  const old = byElement(before, schema);
  const fresh = byElement(after, schema);
  for (const element of new Set([...old.keys(), ...fresh.keys()])) {
    compareValues({ before: old.get(element), after: fresh.get(element), schema: schema.items }, result, element);
  }
}

function byElement(list: JsonValue[], schema: Schema): Map<PathElement, JsonValue> {
  const found = new Map<PathElement, JsonValue>();
  for (const item of list) {
    const element = itemElement(item, schema);
    if (element !== undefined) found.set(element, item);
  }
  return found;
}

interface OneSide {
  readonly value: JsonValue;
  readonly schema: Schema | undefined;
  readonly side: Side;
}

/** A value that only one side has: the path itself and everything below it. */
function addSide({ value, schema, side }: OneSide, result: Comparison, element: PathElement): void {
  const set = result[side];
  set.members.add(element);
  if (typeof value !== "object" || value === null || isAtomic(schema, value)) return;
  const child = set.child(element);
  if (Array.isArray(value)) {
    for (const [key, item] of byElement(value, schema ?? {}))
      addBelow({ value: item, schema: schema?.items, side }, child, key);
  } else {
    for (const [key, item] of Object.entries(value)) {
      const field = schema === undefined ? undefined : fieldSchema(schema, key);
      addBelow({ value: item ?? null, schema: field, side }, child, fieldElement(key));
    }
  }
}

function addBelow(one: OneSide, set: FieldSet, element: PathElement): void {
  const inner = new Comparison();
  addSide(one, inner, element);
  for (const member of inner[one.side].members) set.members.add(member);
  for (const [key, child] of inner[one.side].children) set.children.set(key, child);
}
