import { asJson, isJsonObject, type JsonObject, jsonEqual, type KubeObject } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";

/** What a condition says, without its type and its time. */
export interface ConditionFacts {
  readonly status: "True" | "False";
  readonly reason: string;
  readonly message: string;
}

/** The conditions of a stored definition. */
export function conditionsOf(crd: KubeObject | undefined): JsonObject[] {
  if (crd === undefined) return [];
  return listAt(objectAt(asJson(crd), "status"), "conditions").filter(isJsonObject);
}

/** A condition; its time is that of the earlier one of the same type and status, where there is one. */
export function condition(
  type: string,
  { status, reason, message }: ConditionFacts,
  { before, time }: { before: readonly JsonObject[]; time: string },
): JsonObject {
  const old = before.find((entry) => entry["type"] === type && entry["status"] === status);
  return { type, status, lastTransitionTime: stringAt(old, "lastTransitionTime") ?? time, reason, message };
}

/** A copy of the definition with the condition `Terminating`; the definition itself where that says so already. */
export function withTerminating(crd: KubeObject, facts: ConditionFacts, time: string): KubeObject {
  const before = conditionsOf(crd);
  const terminating = condition("Terminating", facts, { before, time });
  const conditions = [...before.filter(({ type }) => type !== "Terminating"), terminating];
  if (jsonEqual(before, conditions)) return crd;
  const status: JsonObject = { ...objectAt(asJson(crd), "status"), conditions };
  return Object.assign({}, crd, { status });
}

/** Whether the kind of a stored definition is served. */
export function isEstablished(crd: KubeObject): boolean {
  return conditionsOf(crd).some(({ type, status }) => type === "Established" && status === "True");
}
