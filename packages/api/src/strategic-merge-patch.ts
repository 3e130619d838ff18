import { defineKey, isJsonObject, type JsonObject, type JsonValue, ownValue, withoutKey } from "./json-value.ts";
import { elementKeyOf, mergeList, orderElements } from "./merge-list.ts";
import { PatchError } from "./patch-error.ts";
import type { PatchSchema } from "./patch-schema.ts";

const patchDirective = "$patch";
const retainKeysDirective = "$retainKeys";
const elementOrderPrefix = "$setElementOrder/";
const deleteListPrefix = "$deleteFromPrimitiveList/";

/** Applies a strategic merge patch to a copy: lists merge by the keys that the schema names, directives steer it. */
export function strategicMergePatch(original: JsonObject, patch: JsonObject, schema: PatchSchema): JsonObject {
  const directive = ownValue(patch, patchDirective);
  if (directive === "replace") return cleanEntries(withoutKey(patch, patchDirective));
  if (directive === "delete") return {};
  if (directive !== undefined) throw badDirective(directive);
  const merged = { ...retainKeys(original, patch) };
  const ordered = mergeOrderedLists(merged, patch, schema);
  for (const [key, value] of Object.entries(patch)) {
    const isDirective = key === retainKeysDirective || key.startsWith(elementOrderPrefix);
    if (value !== undefined && !isDirective && !ordered.has(key)) mergeField(merged, key, { value, schema });
  }
  return merged;
}

function mergeField(
  merged: JsonObject,
  key: string,
  { value, schema }: { value: JsonValue; schema: PatchSchema },
): void {
  if (key.startsWith(deleteListPrefix)) return deleteFromList(merged, key.slice(deleteListPrefix.length), value);
  if (value === null) {
    delete merged[key];
    return;
  }
  const before = ownValue(merged, key);
  const meta = schema.field(key);
  if (isJsonObject(before) && isJsonObject(value)) {
    defineKey(merged, key, meta.replaces ? cleanEntries(value) : strategicMergePatch(before, value, meta.schema));
  } else if (Array.isArray(before) && Array.isArray(value)) {
    defineKey(merged, key, meta.merges ? mergeList(before, value, listMerge(meta)) : value.flatMap(cleanItem));
  } else {
    const added = clean(value);
    if (added === undefined) delete merged[key];
    else defineKey(merged, key, added);
  }
}

function listMerge(meta: { mergeKey: string | undefined; schema: PatchSchema }) {
  const mergeItem = (item: JsonObject, patch: JsonObject) => strategicMergePatch(item, patch, meta.schema);
  return { mergeKey: meta.mergeKey, mergeItem, cleanItem };
}

/** Everything that is not named goes; that a patch sets something it does not retain is a contradiction. */
function retainKeys(original: JsonObject, patch: JsonObject): JsonObject {
  const retained = ownValue(patch, retainKeysDirective);
  if (retained === undefined) return original;
  if (!Array.isArray(retained)) throw new PatchError("malformed", `${retainKeysDirective} must be a list of keys`);
  for (const [key, value] of Object.entries(patch)) {
    if (value !== null && !isListDirective(key) && !retained.includes(key)) {
      throw new PatchError("malformed", `the patch sets ${key}, which its ${retainKeysDirective} does not name`);
    }
  }
  return Object.fromEntries(Object.entries(original).filter(([key]) => retained.includes(key)));
}

/** Merges the lists for which the patch gives an order, and returns their field names. */
function mergeOrderedLists(merged: JsonObject, patch: JsonObject, schema: PatchSchema): ReadonlySet<string> {
  const done = new Set<string>();
  for (const [directive, order] of Object.entries(patch)) {
    if (!directive.startsWith(elementOrderPrefix)) continue;
    const key = directive.slice(elementOrderPrefix.length);
    const [before, change] = [ownValue(merged, key), ownValue(patch, key)];
    if (!Array.isArray(order)) throw new PatchError("malformed", `${directive} must be a list`);
    if (before === undefined && (change === undefined || change === null)) continue;
    if (change === null) continue;
    const meta = schema.field(key);
    const beforeList = asList(before, key);
    const changeList = asList(change, key);
    assertOrder(changeList, order, { mergeKey: meta.mergeKey, key });
    const replaced = meta.merges ? mergeList(beforeList, changeList, listMerge(meta)) : changeList.flatMap(cleanItem);
    const list = change === undefined ? beforeList : before === undefined ? asList(clean(changeList), key) : replaced;
    defineKey(merged, key, orderElements(list, { order, serverOrder: beforeList, mergeKey: meta.mergeKey }));
    done.add(key);
  }
  return done;
}

function asList(value: JsonValue | undefined, key: string): JsonValue[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw new PatchError("malformed", `${elementOrderPrefix}${key} orders what is not a list`);
  return value;
}

/** The items of the patch must come in the order that it asks for. */
function assertOrder(
  change: JsonValue[],
  order: JsonValue[],
  { mergeKey, key }: { mergeKey: string | undefined; key: string },
): void {
  if (order.length === 0) return;
  const wanted = order.map((item) => elementKeyOf(item, mergeKey));
  let position = 0;
  for (const item of change) {
    if (isJsonObject(item) && Object.hasOwn(item, patchDirective)) continue;
    const found = wanted.indexOf(elementKeyOf(item, mergeKey), position);
    if (found < 0) throw new PatchError("malformed", `the items of ${key} do not follow ${elementOrderPrefix}${key}`);
    position = found + 1;
  }
}

function deleteFromList(merged: JsonObject, key: string, values: JsonValue): void {
  if (!Array.isArray(values)) throw new PatchError("malformed", `${deleteListPrefix}${key} must be a list`);
  const before = ownValue(merged, key);
  if (Array.isArray(before))
    defineKey(
      merged,
      key,
      before.filter((item) => !values.includes(item)),
    );
}

/** A value that the original does not have: without nulls and without directives, or nothing where it is one. */
function clean(value: JsonValue): JsonValue | undefined {
  if (Array.isArray(value)) return value.flatMap(cleanItem);
  if (!isJsonObject(value)) return value;
  return Object.hasOwn(value, patchDirective) ? undefined : cleanEntries(value);
}

function cleanEntries(value: JsonObject): JsonObject {
  const entries = Object.entries(value).flatMap(([key, item]): [string, JsonValue][] => {
    if (item === undefined || item === null || isListDirective(key)) return [];
    const cleaned = clean(item);
    return cleaned === undefined ? [] : [[key, cleaned]];
  });
  return Object.fromEntries(entries);
}

function isListDirective(key: string): boolean {
  return key === retainKeysDirective || key.startsWith(elementOrderPrefix) || key.startsWith(deleteListPrefix);
}

function cleanItem(item: JsonValue): JsonValue[] {
  const cleaned = clean(item);
  return cleaned === undefined ? [] : [cleaned];
}

function badDirective(directive: JsonValue): PatchError {
  return new PatchError("malformed", `${patchDirective} is ${JSON.stringify(directive)}; use replace or delete`);
}
