import { asJson, isJsonObject, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import { listAt, numberAt, objectAt, stringAt } from "../json/json.ts";
import type { ColumnDefinition } from "./column.ts";
import { ageColumn, nameColumn, textColumn } from "./columns.ts";
import { ageOf } from "./human-duration.ts";

function statusOf(object: KubeObject): JsonObject {
  return objectAt(asJson(object), "status") ?? {};
}

function containerStatuses(object: KubeObject, field = "containerStatuses"): JsonObject[] {
  return listAt(statusOf(object), field).filter(isJsonObject);
}

function readyCell(object: KubeObject): string {
  const total = listAt(objectAt(asJson(object), "spec"), "containers").length;
  const ready = containerStatuses(object).filter(
    (status) => status["ready"] === true && objectAt(objectAt(status, "state"), "running") !== undefined,
  );
  return `${ready.length}/${total}`;
}

/** What is going on, in one word: kubectl's STATUS. */
function podReason(object: KubeObject): string {
  const status = statusOf(object);
  let reason = stringAt(status, "reason") || (stringAt(status, "phase") ?? "");
  const init = initReason(object);
  if (init !== undefined) reason = init;
  else {
    let hasRunning = false;
    for (const container of containerStatuses(object).reverse()) {
      const found = stateReason(container);
      if (found !== undefined) reason = found;
      else if (container["ready"] === true && objectAt(objectAt(container, "state"), "running") !== undefined)
        hasRunning = true;
    }
    if (reason === "Completed" && hasRunning) reason = isReady(object) ? "Running" : "NotReady";
  }
  if (object.metadata.deletionTimestamp === undefined) return reason;
  return stringAt(status, "reason") === "NodeLost" ? "Unknown" : "Terminating";
}

function isReady(object: KubeObject): boolean {
  const conditions = listAt(statusOf(object), "conditions").filter(isJsonObject);
  return conditions.some((condition) => condition["type"] === "Ready" && condition["status"] === "True");
}

function stateReason(container: JsonObject): string | undefined {
  const state = objectAt(container, "state");
  const waiting = stringAt(objectAt(state, "waiting"), "reason");
  if (waiting !== undefined && waiting !== "") return waiting;
  const ended = objectAt(state, "terminated");
  if (ended === undefined) return undefined;
  const reason = stringAt(ended, "reason");
  if (reason !== undefined && reason !== "") return reason;
  const signal = numberAt(ended, "signal") ?? 0;
  return signal === 0 ? `ExitCode:${numberAt(ended, "exitCode") ?? 0}` : `Signal:${signal}`;
}

function initReason(object: KubeObject): string | undefined {
  const total = listAt(objectAt(asJson(object), "spec"), "initContainers").length;
  for (const [index, container] of containerStatuses(object, "initContainerStatuses").entries()) {
    const state = objectAt(container, "state");
    const ended = objectAt(state, "terminated");
    if (ended !== undefined && numberAt(ended, "exitCode") === 0) continue;
    if (container["started"] === true) continue;
    if (ended !== undefined) return `Init:${stateReason(container) ?? ""}`;
    const waiting = stringAt(objectAt(state, "waiting"), "reason") ?? "";
    return waiting !== "" && waiting !== "PodInitializing" ? `Init:${waiting}` : `Init:${index}/${total}`;
  }
  return undefined;
}

function restarts(object: KubeObject, nowMs: number): string {
  const all = [...containerStatuses(object), ...containerStatuses(object, "initContainerStatuses")];
  const count = all.reduce((sum, status) => sum + (numberAt(status, "restartCount") ?? 0), 0);
  const ends = all
    .map((status) => stringAt(objectAt(objectAt(status, "lastState"), "terminated"), "finishedAt") ?? "")
    .sort();
  const last = ends.at(-1) ?? "";
  return count > 0 && last !== "" ? `${count} (${ageOf(last, nowMs)} ago)` : String(count);
}

function readinessGates(object: KubeObject): string {
  const gates = listAt(objectAt(asJson(object), "spec"), "readinessGates").filter(isJsonObject);
  if (gates.length === 0) return "<none>";
  const conditions = listAt(statusOf(object), "conditions").filter(isJsonObject);
  const met = gates.filter((gate) =>
    conditions.some((c) => c["type"] === gate["conditionType"] && c["status"] === "True"),
  );
  return `${met.length}/${gates.length}`;
}

const wide = { wide: true };

/** The columns of pods. */
export const podColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Ready", readyCell),
  textColumn("Status", podReason),
  textColumn("Restarts", restarts),
  ageColumn,
  textColumn("IP", (object) => stringAt(statusOf(object), "podIP") || "<none>", wide),
  textColumn("Node", (object) => stringAt(objectAt(asJson(object), "spec"), "nodeName") || "<none>", wide),
  textColumn("Nominated Node", (object) => stringAt(statusOf(object), "nominatedNodeName") || "<none>", wide),
  textColumn("Readiness Gates", readinessGates, wide),
];
