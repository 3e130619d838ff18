import { asJson, isJsonObject, type JsonObject } from "@agent-sandbox/api";
import { listAt, objectAt } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { type FieldError, forbiddenField, invalid } from "../schema/field-error.ts";
import { amountOf, notNegativeErrors } from "./resource-amounts.ts";

/** ResourceQuotas: amounts that can be had. */
export const quotaStrategy: Strategy = {
  returnsDeleted: true,
  validate: (object) => notNegativeErrors(objectAt(objectAt(asJson(object), "spec"), "hard"), "spec.hard"),
};

/** LimitRanges: a container's default limit is its maximum, its default request its default limit or the minimum. */
export const limitRangeStrategy: Strategy = {
  applyDefaults(object) {
    for (const limit of listAt(objectAt(asJson(object), "spec"), "limits").filter(isJsonObject)) {
      if (limit["type"] !== "Container") continue;
      const limits = { ...objectAt(limit, "max"), ...objectAt(limit, "default") };
      const requests = { ...objectAt(limit, "min"), ...limits, ...objectAt(limit, "defaultRequest") };
      if (Object.keys(limits).length > 0) limit["default"] = limits;
      if (Object.keys(requests).length > 0) limit["defaultRequest"] = requests;
    }
  },
  validate: (object) =>
    listAt(objectAt(asJson(object), "spec"), "limits")
      .filter(isJsonObject)
      .flatMap((limit, index) => limitErrors(limit, `spec.limits[${index}]`)),
};

/** Pairs that must not be the wrong way round: the field that is named, the lesser, the greater, and which of them is shown. */
const orders = [
  { field: "min", low: ["min", "min value"], high: ["max", "max value"], shown: "min" },
  {
    field: "defaultRequest",
    low: ["min", "min value"],
    high: ["defaultRequest", "default request value"],
    shown: "defaultRequest",
  },
  {
    field: "defaultRequest",
    low: ["defaultRequest", "default request value"],
    high: ["max", "max value"],
    shown: "defaultRequest",
  },
  {
    field: "defaultRequest",
    low: ["defaultRequest", "default request value"],
    high: ["default", "default limit value"],
    shown: "defaultRequest",
  },
  { field: "default", low: ["min", "min value"], high: ["default", "default value"], shown: "min" },
  { field: "default", low: ["default", "default value"], high: ["max", "max value"], shown: "max" },
] as const;

function limitErrors(limit: JsonObject, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (limit["type"] === "Pod") {
    for (const field of ["default", "defaultRequest"])
      if (limit[field] !== undefined)
        errors.push(forbiddenField(`${path}.${field}`, "may not be specified when `type` is 'Pod'"));
  }
  const parts = ["max", "min", "default", "defaultRequest"];
  const names = new Set(parts.flatMap((part) => Object.keys(objectAt(limit, part) ?? {})));
  for (const name of names) {
    for (const { field, low, high, shown } of orders) {
      const lesser = amountOf(objectAt(limit, low[0])?.[name]);
      const greater = amountOf(objectAt(limit, high[0])?.[name]);
      if (lesser === undefined || greater === undefined || lesser.compare(greater) <= 0) continue;
      const text = `${low[1]} ${lesser.toString()} is greater than ${high[1]} ${greater.toString()}`;
      errors.push(invalid(`${path}.${field}[${name}]`, amountOf(objectAt(limit, shown)?.[name])?.toString(), text));
    }
  }
  return errors;
}
