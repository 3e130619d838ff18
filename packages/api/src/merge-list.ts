import { isJsonObject, type JsonObject, type JsonValue, jsonEqual, ownValue } from "./json-value.ts";
import { PatchError } from "./patch-error.ts";

/** How the items of a list merge. */
interface ListMerge {
  readonly mergeKey: string | undefined;
  readonly mergeItem: (item: JsonObject, patch: JsonObject) => JsonObject;
  /** An item that the original does not have, without directives; an empty list where nothing is left of it. */
  readonly cleanItem: (item: JsonValue) => JsonValue[];
}

/** Merges a list of the patch into the original's: scalars as a set, objects by their merge key. */
export function mergeList(original: JsonValue[], patch: JsonValue[], merge: ListMerge): JsonValue[] {
  if (original.length === 0 && patch.length === 0) return original;
  const { mergeKey } = merge;
  if (![...original, ...patch].some(isJsonObject)) {
    const merged = [...new Set([...original, ...patch])];
    return orderElements(merged, { order: patch, serverOrder: original, mergeKey: undefined });
  }
  if (mergeKey === undefined)
    throw new PatchError("malformed", "a list of objects without a merge key cannot be merged");
  const special = applySpecialItems(original, patch, { ...merge, mergeKey });
  const merged = special.patch.reduce<JsonValue[]>(
    (items, item) => mergeItemInto(items, asObject(item), merge),
    special.original,
  );
  return orderElements(merged, { order: special.patch, serverOrder: special.original, mergeKey });
}

/** Carries out `$patch: delete` and `$patch: replace` items and leaves the ordinary ones. */
function applySpecialItems(original: JsonValue[], patch: JsonValue[], merge: ListMerge & { mergeKey: string }) {
  const { mergeKey, cleanItem } = merge;
  const ordinary: JsonValue[] = [];
  let rest = original;
  let replace = false;
  for (const item of patch.map(asObject)) {
    const directive = ownValue(item, "$patch");
    if (directive === undefined) ordinary.push(item);
    else if (directive === "replace") replace = true;
    else if (directive === "delete") {
      const key = requireKey(item, mergeKey);
      rest = rest.filter((candidate) => !jsonEqual(ownValue(asObject(candidate), mergeKey), key));
    } else {
      throw new PatchError("malformed", `an item's $patch is ${JSON.stringify(directive)}; use replace or delete`);
    }
  }
  return replace ? { original: ordinary.flatMap(cleanItem), patch: [] } : { original: rest, patch: ordinary };
}

function mergeItemInto(items: JsonValue[], patch: JsonObject, merge: ListMerge): JsonValue[] {
  const { mergeKey = "", mergeItem, cleanItem } = merge;
  const key = requireKey(patch, mergeKey);
  const index = items.findIndex((item) => jsonEqual(ownValue(asObject(item), mergeKey), key));
  const found = items[index];
  return found === undefined ? [...items, ...cleanItem(patch)] : items.with(index, mergeItem(asObject(found), patch));
}

/** Which order the result follows: that of the patch for its items, that of the server for the rest. */
interface ElementOrder {
  readonly order: JsonValue[];
  readonly serverOrder: JsonValue[];
  readonly mergeKey: string | undefined;
}

/** The items with those of `order` in its order; the others stay where the server had them relative to these. */
export function orderElements(items: JsonValue[], { order, serverOrder, mergeKey }: ElementOrder): JsonValue[] {
  const wanted = order.map((item) => elementKeyOf(item, mergeKey));
  const server = serverOrder.map((item) => elementKeyOf(item, mergeKey));
  const rank = (keys: string[], item: JsonValue) => keys.indexOf(elementKeyOf(item, mergeKey));
  const patched = items.filter((item) => rank(wanted, item) >= 0).sort((a, b) => rank(wanted, a) - rank(wanted, b));
  const others = items.filter((item) => rank(wanted, item) < 0).sort((a, b) => rank(server, a) - rank(server, b));
  const result: JsonValue[] = [];
  while (patched.length > 0 || others.length > 0) {
    const [left, right] = [others[0], patched[0]];
    const comesFirst = left !== undefined && (right === undefined || precedes(rank(server, left), rank(server, right)));
    const next = comesFirst ? others.shift() : patched.shift();
    if (next !== undefined) result.push(next);
  }
  return result;
}

function precedes(left: number, right: number): boolean {
  return left >= 0 && right >= 0 && left < right;
}

/** What identifies an item among its siblings, as text: its merge key's value, or the scalar itself. */
export function elementKeyOf(item: JsonValue, mergeKey: string | undefined): string {
  return JSON.stringify(isJsonObject(item) && mergeKey !== undefined ? requireKey(item, mergeKey) : item);
}

function requireKey(item: JsonObject, mergeKey: string): JsonValue {
  const value = ownValue(item, mergeKey);
  if (value === undefined) throw new PatchError("malformed", `an item does not contain the merge key "${mergeKey}"`);
  return value;
}

function asObject(item: JsonValue): JsonObject {
  if (!isJsonObject(item)) throw new PatchError("malformed", "a list mixes objects and other values");
  return item;
}
