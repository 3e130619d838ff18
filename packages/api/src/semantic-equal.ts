import { tryParseQuantity } from "./quantity.ts";
import { tryParseTimestampNanos } from "./timestamp.ts";

/** Maps whose values are quantities. */
const quantityMaps = new Set([
  "allocatable",
  "allocatedResources",
  "capacity",
  "default",
  "defaultRequest",
  "hard",
  "limits",
  "max",
  "maxLimitRequestRatio",
  "min",
  "overhead",
  "requests",
  "usage",
  "used",
]);
/** Fields that are one quantity. */
const quantityFields = new Set(["divisor", "sizeLimit"]);
/** Maps whose values are text and nothing else, whatever they look like. */
const textMaps = new Set(["annotations", "data", "labels", "matchLabels", "nodeSelector", "stringData"]);
/** Objects that mean something by being there empty: an absent one means something else. */
const presenceMatters = new Set(["emptyDir", "labelSelector", "namespaceSelector", "networkPolicy", "podSelector"]);

/**
 * Whether two values mean the same to Kubernetes: null, absent, empty lists and empty maps are equal,
 * quantities compare by value, times as instants, everything else exactly.
 */
export function semanticEqual(a: unknown, b: unknown): boolean {
  return equalAt(a, b, "exact");
}

/** What a scalar at this place is. */
type Place = "exact" | "quantity" | "time" | "text";

function equalAt(a: unknown, b: unknown, place: Place): boolean {
  if (a === b) return true;
  if (isEmpty(a) || isEmpty(b)) return isEmpty(a) && isEmpty(b);
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, index) => equalAt(item, b[index], place));
  }
  if (isRecord(a)) return isRecord(b) && !Array.isArray(b) && recordsEqual(a, b, place);
  if (place === "quantity") return quantitiesEqual(a, b);
  return place === "time" && timesEqual(a, b);
}

function recordsEqual(a: Record<string, unknown>, b: Record<string, unknown>, place: Place): boolean {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  for (const key of keys) {
    const [left, right] = [own(a, key), own(b, key)];
    if (place !== "text" && presenceMatters.has(key) && isAbsent(left) !== isAbsent(right)) return false;
    if (!equalAt(left, right, placeUnder(place, key, left))) return false;
  }
  return true;
}

function placeUnder(place: Place, key: string, value: unknown): Place {
  if (place === "text" || place === "quantity") return place;
  if (textMaps.has(key)) return "text";
  if (quantityFields.has(key) || (quantityMaps.has(key) && isRecord(value))) return "quantity";
  return /(Time|Timestamp|At)$/.test(key) || key === "time" ? "time" : "exact";
}

function quantitiesEqual(a: unknown, b: unknown): boolean {
  const [left, right] = [asQuantity(a), asQuantity(b)];
  return left !== undefined && right !== undefined && left.compare(right) === 0;
}

function asQuantity(value: unknown) {
  return typeof value === "string" || typeof value === "number" ? tryParseQuantity(value) : undefined;
}

function timesEqual(a: unknown, b: unknown): boolean {
  if (typeof a !== "string" || typeof b !== "string") return false;
  const left = tryParseTimestampNanos(a);
  return left !== undefined && left === tryParseTimestampNanos(b);
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null;
}

function isEmpty(value: unknown): boolean {
  if (isAbsent(value)) return true;
  if (Array.isArray(value)) return value.length === 0;
  if (!isRecord(value)) return false;
  return Object.entries(value).every(([key, item]) => isAbsent(item) || (isEmpty(item) && !presenceMatters.has(key)));
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function own(record: Record<string, unknown>, key: string): unknown {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}
