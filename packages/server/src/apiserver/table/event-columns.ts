import { asJson, type KubeObject } from "@agent-sandbox/api";
import { numberAt, objectAt, stringAt } from "../json/json.ts";
import type { ColumnDefinition } from "./column.ts";
import { nameColumn, textColumn } from "./columns.ts";
import { ageOf } from "./human-duration.ts";

function firstSeen(object: KubeObject, nowMs: number): string {
  const root = asJson(object);
  const first =
    stringAt(root, "firstTimestamp") ?? stringAt(root, "deprecatedFirstTimestamp") ?? stringAt(root, "eventTime");
  return ageOf(first, nowMs);
}

function lastSeen(object: KubeObject, nowMs: number): string {
  const root = asJson(object);
  const series = stringAt(objectAt(root, "series"), "lastObservedTime");
  const last = series ?? stringAt(root, "lastTimestamp") ?? stringAt(root, "deprecatedLastTimestamp");
  return last === undefined ? firstSeen(object, nowMs) : ageOf(last, nowMs);
}

function target(object: KubeObject): string {
  const about = objectAt(asJson(object), "involvedObject") ?? objectAt(asJson(object), "regarding");
  const kind = (stringAt(about, "kind") ?? "").toLowerCase();
  const name = stringAt(about, "name") ?? "";
  return name === "" ? kind : `${kind}/${name}`;
}

function source(object: KubeObject): string {
  const root = asJson(object);
  const from = objectAt(root, "source") ?? objectAt(root, "deprecatedSource");
  const component =
    stringAt(from, "component") ?? stringAt(root, "reportingComponent") ?? stringAt(root, "reportingController") ?? "";
  const host = stringAt(from, "host");
  return host === undefined ? component : `${component}, ${host}`;
}

/** The columns of events. */
export const eventColumns: ColumnDefinition[] = [
  textColumn("Last Seen", lastSeen),
  textColumn("Type", (object) => stringAt(asJson(object), "type") ?? ""),
  textColumn("Reason", (object) => stringAt(asJson(object), "reason") ?? ""),
  textColumn("Object", target),
  textColumn("Subobject", (object) => stringAt(objectAt(asJson(object), "involvedObject"), "fieldPath") ?? "", {
    wide: true,
  }),
  textColumn("Source", source, { wide: true }),
  textColumn("Message", (object) =>
    (stringAt(asJson(object), "message") ?? stringAt(asJson(object), "note") ?? "").trim(),
  ),
  textColumn("First Seen", firstSeen, { wide: true }),
  textColumn(
    "Count",
    (object) => numberAt(objectAt(asJson(object), "series"), "count") ?? numberAt(asJson(object), "count") ?? 1,
    { wide: true },
  ),
  { ...nameColumn, priority: 1 },
];
