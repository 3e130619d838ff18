import { badRequest } from "@agent-sandbox/api";
import { cloneJson, isJsonObject, type JsonObject, type JsonValue, jsonEqual } from "../json/json.ts";
import { fieldSchema, type Schema } from "../schema/schema.ts";

const directive = "$patch";
const retainKeys = "$retainKeys";
const deleteFromPrimitive = "$deleteFromPrimitiveList/";
const setElementOrder = "$setElementOrder/";

/** Applies a strategic merge patch: lists with a merge key are merged item by item, as the kind's schema says. */
export function strategicMerge(document: JsonObject, patch: JsonObject, schema: Schema | undefined): JsonObject {
  switch (patch[directive]) {
    case undefined:
    case "merge":
      break;
    case "replace": {
      const { [directive]: _directive, ...rest } = patch;
      return cloneJson(rest as JsonObject);
    }
    case "delete":
      return {};
    default:
      throw badRequest(`unknown patch type ${JSON.stringify(patch[directive])} found in ${directive}`);
  }
  const result = retained(document, patch);
  for (const [key, value] of Object.entries(patch)) {
    if (value === undefined || key === directive || key === retainKeys) continue;
    if (key.startsWith(deleteFromPrimitive)) deletePrimitives(result, key.slice(deleteFromPrimitive.length), value);
    else if (!key.startsWith(setElementOrder)) mergeField({ result, key, value, schema });
  }
  for (const [key, order] of Object.entries(patch)) {
    if (key.startsWith(setElementOrder) && Array.isArray(order))
      applyOrder({ result, key: key.slice(setElementOrder.length), order, schema });
  }
  return result;
}

/** `$retainKeys` drops every other key of the document: it replaces one branch of a union by another. */
function retained(document: JsonObject, patch: JsonObject): JsonObject {
  const keys = patch[retainKeys];
  if (keys === undefined) return { ...document };
  if (!Array.isArray(keys)) throw badRequest(`${retainKeys} must be a list of field names`);
  return Object.fromEntries(Object.entries(document).filter(([key]) => keys.includes(key)));
}

function deletePrimitives(result: JsonObject, key: string, value: JsonValue): void {
  const present = result[key];
  if (!Array.isArray(present) || !Array.isArray(value)) return;
  result[key] = present.filter((item) => !value.some((gone) => jsonEqual(gone, item)));
}

interface Field {
  readonly result: JsonObject;
  readonly key: string;
  readonly value: JsonValue;
  readonly schema: Schema | undefined;
}

function mergeField({ result, key, value, schema }: Field): void {
  const child = schema === undefined ? undefined : fieldSchema(schema, key);
  if (value === null) {
    delete result[key];
    return;
  }
  const present = Object.hasOwn(result, key) ? result[key] : undefined;
  if (isJsonObject(value)) result[key] = strategicMerge(isJsonObject(present) ? present : {}, value, child);
  else if (Array.isArray(value)) result[key] = mergeList(Array.isArray(present) ? present : [], value, child);
  else result[key] = value;
}

function mergeList(present: JsonValue[], patch: JsonValue[], schema: Schema | undefined): JsonValue[] {
  const replaces = patch.some((item) => isJsonObject(item) && item[directive] === "replace");
  const isMerged = (schema?.["x-kubernetes-patch-strategy"] ?? "").split(",").includes("merge");
  if (!isMerged || replaces)
    return cloneJson(patch.filter((item) => !(isJsonObject(item) && item[directive] !== undefined)));
  const mergeKey = schema?.["x-kubernetes-patch-merge-key"];
  if (mergeKey === undefined)
    return [...present, ...patch.filter((item) => !present.some((other) => jsonEqual(other, item)))];
  return mergeByKey({ present, patch, mergeKey, items: schema?.items });
}

interface KeyedMerge {
  readonly present: JsonValue[];
  readonly patch: JsonValue[];
  readonly mergeKey: string;
  readonly items: Schema | undefined;
}

function mergeByKey({ present, patch, mergeKey, items }: KeyedMerge): JsonValue[] {
  let result = [...present];
  for (const item of patch) {
    if (!isJsonObject(item)) throw badRequest(`every item of a list merged by ${mergeKey} must be an object`);
    const key = item[mergeKey];
    if (key === undefined)
      throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${mergeKey}`);
    const at = result.findIndex((other) => isJsonObject(other) && jsonEqual(other[mergeKey], key));
    const existing = result[at];
    if (item[directive] === "delete")
      result = result.filter((other) => !(isJsonObject(other) && jsonEqual(other[mergeKey], key)));
    else if (isJsonObject(existing)) result[at] = strategicMerge(existing, item, items);
    else result.push(strategicMerge({}, item, items));
  }
  return result;
}

interface Order {
  readonly result: JsonObject;
  readonly key: string;
  readonly order: JsonValue[];
  readonly schema: Schema | undefined;
}

/** Sorts a merged list as the patch asks; items it does not name keep their place behind the item before them. */
function applyOrder({ result, key, order, schema }: Order): void {
  const list = result[key];
  if (!Array.isArray(list)) return;
  const child = schema === undefined ? undefined : fieldSchema(schema, key);
  const mergeKey = child?.["x-kubernetes-patch-merge-key"];
  const keyOf = (item: JsonValue): string =>
    JSON.stringify(mergeKey !== undefined && isJsonObject(item) ? (item[mergeKey] ?? null) : item);
  const rank = new Map(order.map((item, index) => [keyOf(item), index]));
  let last = -1;
  const ranked = list.map((item, index) => {
    last = rank.get(keyOf(item)) ?? last;
    return { item, rank: last, isNamed: rank.has(keyOf(item)), index };
  });
  ranked.sort((a, b) => a.rank - b.rank || Number(b.isNamed) - Number(a.isNamed) || a.index - b.index);
  result[key] = ranked.map(({ item }) => item);
}
