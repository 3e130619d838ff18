import { isJsonObject, type JsonObject, type JsonValue } from "@agent-sandbox/api";
import { cloneJson } from "../json/json.ts";
import { fieldElement, itemElement } from "../schema/path-element.ts";
import { fieldSchema, isAtomic, type Schema } from "../schema/schema.ts";
import type { FieldSet } from "./field-set.ts";

/** The live object with the applied configuration laid over it; neither argument is changed. */
export function mergeObjects(live: JsonObject, config: JsonObject, schema: Schema | undefined): JsonObject {
  const merged: JsonObject = { ...live };
  for (const [key, value] of Object.entries(config)) {
    if (value === undefined) continue;
    const child = schema === undefined ? undefined : fieldSchema(schema, key);
    merged[key] = mergeValues(Object.hasOwn(live, key) ? live[key] : undefined, value, child);
  }
  return merged;
}

function mergeValues(live: JsonValue | undefined, config: JsonValue, schema: Schema | undefined): JsonValue {
  if (isAtomic(schema, config)) return cloneJson(config);
  if (isJsonObject(config)) return mergeObjects(isJsonObject(live) ? live : {}, config, schema);
  if (Array.isArray(config)) return mergeLists(Array.isArray(live) ? live : [], config, schema ?? {});
  return config;
}

/**
 * Items of the configuration keep their order; items only in the live list keep theirs relative to their neighbours,
 * as they follow the shared item that precedes them.
 */
function mergeLists(live: JsonValue[], config: JsonValue[], schema: Schema): JsonValue[] {
  const elementOf = (item: JsonValue): string => itemElement(item, schema) ?? JSON.stringify(item);
  const liveItems = new Map(live.map((item) => [elementOf(item), item]));
  const wanted = new Set(config.map(elementOf));
  const merged: JsonValue[] = [];
  let at = 0;
  const pushLiveOnly = (): void => {
    for (; at < live.length; at++) {
      const item = live[at];
      if (item === undefined || wanted.has(elementOf(item))) return;
      merged.push(item);
    }
  };
  pushLiveOnly();
  for (const item of config) {
    const existing = liveItems.get(elementOf(item));
    merged.push(existing === undefined ? cloneJson(item) : mergeValues(existing, item, schema.items));
    if (existing !== undefined && live[at] !== undefined && elementOf(live[at] ?? null) === elementOf(item)) {
      at++;
      pushLiveOnly();
    }
  }
  for (; at < live.length; at++) {
    const item = live[at];
    if (item !== undefined && !wanted.has(elementOf(item))) merged.push(item);
  }
  return merged;
}

/** What a removal needs: the paths no longer applied, and those that a manager still owns. */
export interface Removal {
  readonly dropped: FieldSet;
  readonly owned: FieldSet | undefined;
}

/** The object without the dropped paths that have no owner; a container that holds something owned stays. */
export function removeFields(object: JsonObject, schema: Schema | undefined, removal: Removal): JsonObject {
  const result: JsonObject = {};
  for (const [key, value] of Object.entries(object)) {
    if (value === undefined) continue;
    const child = schema === undefined ? undefined : fieldSchema(schema, key);
    const kept = removeBelow({ value, schema: child, element: fieldElement(key) }, removal);
    if (kept !== undefined) result[key] = kept;
  }
  return result;
}

interface Place {
  readonly value: JsonValue;
  readonly schema: Schema | undefined;
  readonly element: string;
}

/** A value without an owner goes as a whole, with the defaults below it; one that holds something owned is descended into. */
function removeBelow({ value, schema, element }: Place, { dropped, owned }: Removal): JsonValue | undefined {
  const droppedBelow = dropped.children.get(element);
  if (!dropped.members.has(element) && droppedBelow === undefined) return value;
  if (owned?.covers(element) !== true) return undefined;
  if (droppedBelow === undefined || isAtomic(schema, value)) return value;
  return removeInside(value, schema, { dropped: droppedBelow, owned: owned.children.get(element) });
}

function removeInside(value: JsonValue, schema: Schema | undefined, removal: Removal): JsonValue {
  if (isJsonObject(value)) return removeFields(value, schema, removal);
  if (!Array.isArray(value)) return value;
  const kept: JsonValue[] = [];
  for (const item of value) {
    const element = itemElement(item, schema ?? {});
    const rest = element === undefined ? item : removeBelow({ value: item, schema: schema?.items, element }, removal);
    if (rest !== undefined) kept.push(rest);
  }
  return kept;
}
