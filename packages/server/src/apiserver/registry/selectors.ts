import {
  asJson,
  badRequest,
  type FieldRequirement,
  isJsonObject,
  type JsonValue,
  type KubeObject,
  matchesFields,
  matchesLabels,
  ownValue,
  parseFieldSelector,
  parseLabelSelector,
} from "@agent-sandbox/api";
import type { ResourceDefinition, VersionDefinition } from "./resource-definition.ts";

/** Decides whether an object is meant. */
export type ObjectMatcher = (object: KubeObject) => boolean;

/** The matcher of `labelSelector`; undefined when it selects everything. Throws BadRequest. */
export function labelMatcher(text: string): ObjectMatcher | undefined {
  const requirements = orBadRequest(() => parseLabelSelector(text));
  if (requirements.length === 0) return undefined;
  return ({ metadata }) => matchesLabels(requirements, metadata.labels);
}

/** Takes a `fieldSelector` apart; throws BadRequest. */
export function fieldRequirements(text: string): readonly FieldRequirement[] {
  return orBadRequest(() => parseFieldSelector(text));
}

function orBadRequest<T>(parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    if (cause instanceof SyntaxError) throw badRequest(`unable to parse requirement: ${cause.message}`, { cause });
    throw cause;
  }
}

/** The matcher of field requirements; throws BadRequest for a field the kind does not offer. */
export function fieldMatcher(
  requirements: readonly FieldRequirement[],
  { definition, version }: { definition: ResourceDefinition; version: VersionDefinition },
): ObjectMatcher | undefined {
  if (requirements.length === 0) return undefined;
  const fields = (object: KubeObject): Record<string, string> => ({
    "metadata.name": object.metadata.name ?? "",
    ...(definition.namespaced ? { "metadata.namespace": object.metadata.namespace ?? "" } : {}),
    ...Object.fromEntries(version.selectableFields.map((path) => [path.replace(/^\./, ""), textAt(object, path)])),
    ...definition.strategy.selectableFields?.(object),
  });
  const known = fields({ apiVersion: "", kind: "", metadata: { name: "" } });
  for (const { field } of requirements) {
    if (!Object.hasOwn(known, field)) throw badRequest(`field label not supported: ${field}`);
  }
  return (object) => {
    const values = fields(object);
    return matchesFields(requirements, (field) => values[field] ?? "");
  };
}

/** The text of a simple path such as `.spec.color`; empty when it is absent. */
function textAt(object: KubeObject, path: string): string {
  const value = valueAt(asJson(object), path);
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The value of a simple dotted path; undefined when it is absent. */
export function valueAt(root: JsonValue, path: string): JsonValue | undefined {
  let value: JsonValue | undefined = root;
  for (const step of path.split(".")) {
    if (step === "") continue;
    value = isJsonObject(value) ? ownValue(value, step) : undefined;
  }
  return value;
}
