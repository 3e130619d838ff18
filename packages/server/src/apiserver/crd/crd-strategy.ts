import {
  asJson,
  dns1035LabelProblems,
  isJsonObject,
  type JsonObject,
  jsonEqual,
  type KubeObject,
} from "@agent-sandbox/api";
import { formatTime } from "../json/format-time.ts";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import type { Strategy, StrategyContext } from "../registry/resource-definition.ts";
import { type FieldError, invalid, notSupported, required } from "../schema/field-error.ts";
import type { Schema } from "../schema/schema.ts";
import { cleanupFinalizer } from "./cleanup-finalizer.ts";
import { type ConditionFacts, condition, conditionsOf, isEstablished } from "./crd-conditions.ts";
import { reviewNames } from "./name-clashes.ts";
import { priceRules } from "./price-rules.ts";
import { validateStructural } from "./validate-structural.ts";

/**
 * CustomResourceDefinitions: names accepted and established at once, because one process decides alone. One whose names
 * clash with another's is stored and not served; it is looked at again with its next write.
 */
export const crdStrategy: Strategy = {
  hasGeneration: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec");
    const names = objectAt(spec, "names");
    if (spec === undefined || names === undefined) return;
    const kind = stringAt(names, "kind") ?? "";
    names["singular"] ??= kind.toLowerCase();
    names["listKind"] ??= `${kind}List`;
    spec["conversion"] ??= { strategy: "None" };
    for (const version of listAt(spec, "versions").filter(isJsonObject))
      dropEmptyProperties(objectAt(objectAt(version, "schema"), "openAPIV3Schema"));
  },
  prepareCreate(object, context) {
    asJson(object)["status"] = statusOf(object, undefined, context);
    object.metadata.finalizers = [...new Set([...(object.metadata.finalizers ?? []), cleanupFinalizer])];
  },
  prepareUpdate(object, old, context) {
    if (context.subresource === "") asJson(object)["status"] = statusOf(object, old, context);
  },
  validate: validateCrd,
  validateCreate: (object) => priceVersions(object, undefined),
  validateUpdate(object, old) {
    const errors = priceVersions(object, old);
    const spec = objectAt(asJson(object), "spec") ?? {};
    const before = objectAt(asJson(old), "spec") ?? {};
    if (spec["scope"] !== before["scope"]) errors.push(invalid("spec.scope", spec["scope"], "field is immutable"));
    if (spec["group"] !== before["group"]) errors.push(invalid("spec.group", spec["group"], "field is immutable"));
    for (const key of ["kind", "plural"]) {
      const name = objectAt(spec, "names")?.[key];
      if (!jsonEqual(name, objectAt(before, "names")?.[key]))
        errors.push(invalid(`spec.names.${key}`, name, "field is immutable"));
    }
    return errors;
  },
};

/** An empty map of fields says nothing, and Go does not write it. */
function dropEmptyProperties(node: JsonObject | undefined): void {
  if (node === undefined) return;
  const properties = objectAt(node, "properties") ?? {};
  if (Object.keys(properties).length === 0) delete node["properties"];
  for (const child of [...Object.values(properties), node["items"], node["additionalProperties"]])
    if (isJsonObject(child)) dropEmptyProperties(child);
}

function statusOf(object: KubeObject, old: KubeObject | undefined, context: StrategyContext): JsonObject {
  const spec = objectAt(asJson(object), "spec") ?? {};
  const group = stringAt(spec, "group") ?? "";
  const others = context
    .kinds()
    .filter(
      (kind) => kind.group === group && kind.custom !== undefined && kind.custom.crdName !== object.metadata.name,
    );
  const { accepted, clash } = reviewNames(objectAt(spec, "names") ?? {}, others);
  const wasEstablished = old !== undefined && isEstablished(old);
  const storage = listAt(spec, "versions")
    .filter(isJsonObject)
    .find((version) => version["storage"] === true);
  const stored = old === undefined ? [] : listAt(objectAt(asJson(old), "status"), "storedVersions").map(String);
  const names: ConditionFacts =
    clash === undefined
      ? { status: "True", reason: "NoConflicts", message: "no conflicts found" }
      : { status: "False", ...clash };
  // A kind that is served stays so; only its first names decide.
  const established: ConditionFacts =
    clash === undefined || wasEstablished
      ? { status: "True", reason: "InitialNamesAccepted", message: "the initial names have been accepted" }
      : { status: "False", reason: "NotAccepted", message: "not all names are accepted" };
  const at = { before: conditionsOf(old), time: formatTime(context.nowMs) };
  return {
    conditions: [
      condition("NamesAccepted", names, at),
      condition("Established", established, at),
      // Of a definition that is being deleted; the clean-up writes it.
      ...at.before.filter(({ type }) => type === "Terminating"),
    ],
    acceptedNames: accepted,
    storedVersions: [...new Set([...stored, stringAt(storage, "name") ?? ""])],
  };
}

function validateCrd(object: KubeObject): FieldError[] {
  const spec = objectAt(asJson(object), "spec");
  if (spec === undefined) return [required("spec")];
  const errors: FieldError[] = [];
  const names = objectAt(spec, "names");
  const expected = `${stringAt(names, "plural") ?? ""}.${stringAt(spec, "group") ?? ""}`;
  if (object.metadata.name !== expected) {
    errors.push(invalid("metadata.name", object.metadata.name ?? "", `must be spec.names.plural+"."+spec.group`));
  }
  if (!stringAt(spec, "group")) errors.push(required("spec.group"));
  for (const key of ["plural", "singular", "kind", "listKind"]) {
    const name = stringAt(names, key) ?? "";
    // Kinds have capitals, and are otherwise names like the others.
    const checked = key === "plural" || key === "singular" ? name : name.toLowerCase();
    if (name === "") errors.push(required(`spec.names.${key}`));
    else for (const problem of dns1035LabelProblems(checked)) errors.push(invalid(`spec.names.${key}`, name, problem));
  }
  if (!["Cluster", "Namespaced"].includes(stringAt(spec, "scope") ?? "")) {
    errors.push(notSupported("spec.scope", spec["scope"] ?? "", ["Cluster", "Namespaced"]));
  }
  return [...errors, ...validateVersions(spec)];
}

/** Prices the rules of schemas that changed: one that was accepted once stays so. */
function priceVersions(object: KubeObject, old: KubeObject | undefined): FieldError[] {
  const schemaOf = (version: JsonObject): JsonObject | undefined =>
    objectAt(objectAt(version, "schema"), "openAPIV3Schema");
  const versionsOf = (crd: KubeObject | undefined): JsonObject[] =>
    crd === undefined ? [] : listAt(objectAt(asJson(crd), "spec"), "versions").filter(isJsonObject);
  const before = versionsOf(old).map(schemaOf);
  const versions = versionsOf(object);
  return versions.flatMap((version, index) => {
    const schema = schemaOf(version);
    if (schema === undefined || before.some((other) => jsonEqual(other ?? null, schema))) return [];
    return priceRules(schema as Schema, schemaPathOf(versions, index));
  });
}

/** Kubernetes keeps a schema that all versions share in one place, and names that place. */
function schemaPathOf(versions: readonly JsonObject[], index: number): string {
  const own = versions[index]?.["schema"] ?? null;
  const isShared = versions.every((other) => jsonEqual(other["schema"] ?? null, own));
  return isShared ? "spec.validation.openAPIV3Schema" : `spec.versions[${index}].schema.openAPIV3Schema`;
}

function validateVersions(spec: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  const versions = listAt(spec, "versions").filter(isJsonObject);
  if (versions.filter((version) => version["storage"] === true).length !== 1) {
    errors.push(
      invalid("spec.versions", spec["versions"] ?? null, "must have exactly one version marked as storage version"),
    );
  }
  for (const [index, version] of versions.entries()) {
    const path = `spec.versions[${index}]`;
    const schema = objectAt(objectAt(version, "schema"), "openAPIV3Schema");
    if (schema === undefined) errors.push(required(`${path}.schema.openAPIV3Schema`));
    else errors.push(...validateStructural(schema, schemaPathOf(versions, index)));
  }
  return errors;
}
