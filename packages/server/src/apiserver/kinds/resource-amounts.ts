import {
  type JsonObject,
  type JsonValue,
  type Quantity,
  qualifiedNameProblems,
  tryParseQuantity,
} from "@agent-sandbox/api";
import { objectAt } from "../json/json.ts";
import { type FieldError, invalid } from "../schema/field-error.ts";

const containerResources = ["cpu", "memory", "ephemeral-storage"];
const notNegative = "must be greater than or equal to 0";

/** The amount a field holds; undefined when it is none, which decoding has refused already. */
export function amountOf(value: JsonValue | undefined): Quantity | undefined {
  return typeof value === "string" || typeof value === "number" ? tryParseQuantity(value) : undefined;
}

/** Refuses amounts below zero, in Kubernetes' words. */
export function notNegativeErrors(amounts: JsonObject | undefined, path: string): FieldError[] {
  return Object.entries(amounts ?? {}).flatMap(([name, value]) => {
    const amount = amountOf(value);
    return amount !== undefined && amount.nanos < 0n
      ? [invalid(`${path}[${name}]`, amount.toString(), notNegative)]
      : [];
  });
}

/** Problems of a container's requests and limits. */
export function validateContainerResources(
  resources: JsonObject | undefined,
  path: string,
  errors: FieldError[],
): void {
  const limits = objectAt(resources, "limits") ?? {};
  for (const part of ["limits", "requests"] as const) {
    const amounts = objectAt(resources, part);
    for (const name of Object.keys(amounts ?? {})) errors.push(...resourceNameErrors(name, `${path}.${part}[${name}]`));
    errors.push(...notNegativeErrors(amounts, `${path}.${part}`));
  }
  for (const [name, value] of Object.entries(objectAt(resources, "requests") ?? {})) {
    const request = amountOf(value);
    const limit = amountOf(limits[name]);
    if (request === undefined || limit === undefined) continue;
    const mustBeEqual = name.includes("/") || name.startsWith("hugepages-");
    const isWrong = mustBeEqual ? request.compare(limit) !== 0 : request.compare(limit) > 0;
    const relation = mustBeEqual ? "equal to" : "less than or equal to";
    if (isWrong)
      errors.push(
        invalid(`${path}.requests`, request.toString(), `must be ${relation} ${name} limit of ${limit.toString()}`),
      );
  }
}

/** A container asks for a resource of every node, or for one named with its domain. */
function resourceNameErrors(name: string, path: string): FieldError[] {
  const problems = qualifiedNameProblems(name).map((problem) => invalid(path, name, problem));
  if (name.includes("/") || containerResources.includes(name) || name.startsWith("hugepages-")) return problems;
  return [
    ...problems,
    invalid(path, name, "must be a standard resource type or fully qualified"),
    invalid(path, name, "must be a standard resource for containers"),
  ];
}
