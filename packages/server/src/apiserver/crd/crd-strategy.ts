import { isJsonObject, type JsonObject, jsonEqual, listAt, objectAt, stringAt } from "../json/json.ts";
import { type ApiObject, asJson, formatTime } from "../object.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { type FieldError, invalid, notSupported, required } from "../schema/field-error.ts";
import { cleanupFinalizer } from "./cleanup-finalizer.ts";
import { validateStructural } from "./validate-structural.ts";

/** CustomResourceDefinitions: names accepted and established at once, because one process decides alone. */
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
  },
  prepareCreate(object, { nowMs }) {
    object["status"] = acceptedStatus(object, [], formatTime(nowMs));
    object.metadata.finalizers = [...new Set([...(object.metadata.finalizers ?? []), cleanupFinalizer])];
  },
  prepareUpdate(object, old, { nowMs, subresource }) {
    if (subresource !== "") return;
    const stored = listAt(objectAt(asJson(old), "status"), "storedVersions").map(String);
    object["status"] = acceptedStatus(object, stored, transitionTime(old) ?? formatTime(nowMs));
  },
  validate: validateCrd,
  validateUpdate(object, old) {
    const errors: FieldError[] = [];
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

function transitionTime(object: ApiObject): string | undefined {
  const conditions = listAt(objectAt(asJson(object), "status"), "conditions").filter(isJsonObject);
  return stringAt(conditions[0], "lastTransitionTime");
}

function acceptedStatus(object: ApiObject, stored: readonly string[], time: string): JsonObject {
  const spec = objectAt(asJson(object), "spec") ?? {};
  const storage = listAt(spec, "versions")
    .filter(isJsonObject)
    .find((version) => version["storage"] === true);
  const condition = (type: string, reason: string, message: string): JsonObject => ({
    type,
    status: "True",
    lastTransitionTime: time,
    reason,
    message,
  });
  return {
    conditions: [
      condition("NamesAccepted", "NoConflicts", "no conflicts found"),
      condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ],
    acceptedNames: objectAt(spec, "names") ?? {},
    storedVersions: [...new Set([...stored, stringAt(storage, "name") ?? ""])],
  };
}

function validateCrd(object: ApiObject): FieldError[] {
  const spec = objectAt(asJson(object), "spec");
  if (spec === undefined) return [required("spec")];
  const errors: FieldError[] = [];
  const names = objectAt(spec, "names");
  const expected = `${stringAt(names, "plural") ?? ""}.${stringAt(spec, "group") ?? ""}`;
  if (object.metadata.name !== expected) {
    errors.push(invalid("metadata.name", object.metadata.name ?? "", `must be spec.names.plural+"."+spec.group`));
  }
  for (const key of ["plural", "kind"]) if (!stringAt(names, key)) errors.push(required(`spec.names.${key}`));
  if (!["Cluster", "Namespaced"].includes(stringAt(spec, "scope") ?? "")) {
    errors.push(notSupported("spec.scope", spec["scope"] ?? "", ["Cluster", "Namespaced"]));
  }
  return [...errors, ...validateVersions(spec)];
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
    if (schema === undefined) errors.push(required(`${path}.schema.openAPIV3Schema`, "schemas are required"));
    else errors.push(...validateStructural(schema, `${path}.schema.openAPIV3Schema`));
  }
  return errors;
}
