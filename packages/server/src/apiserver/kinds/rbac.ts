import { asJson, isJsonObject, jsonEqual, type KubeObject } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { type FieldError, invalid, notSupported, required } from "../schema/field-error.ts";

const rbacGroup = "rbac.authorization.k8s.io";

/** Roles: every rule has verbs and something they apply to. */
export const roleStrategy: Strategy = {
  nameRule: "path-segment",
  validate(object) {
    const errors: FieldError[] = [];
    for (const [index, rule] of listAt(asJson(object), "rules").entries()) {
      if (!isJsonObject(rule)) continue;
      const path = `rules[${index}]`;
      if (listAt(rule, "verbs").length === 0)
        errors.push(required(`${path}.verbs`, "verbs must contain at least one value"));
      const isPlain = listAt(rule, "nonResourceURLs").length > 0;
      if (isPlain && object.kind === "Role") {
        errors.push(
          invalid(
            `${path}.nonResourceURLs`,
            rule["nonResourceURLs"],
            "namespaced rules cannot apply to non-resource URLs",
          ),
        );
      }
      if (!isPlain && listAt(rule, "apiGroups").length === 0) {
        errors.push(required(`${path}.apiGroups`, "resource rules must supply at least one api group"));
      }
      if (!isPlain && listAt(rule, "resources").length === 0) {
        errors.push(required(`${path}.resources`, "resource rules must supply at least one resource"));
      }
    }
    return errors;
  },
};

/** Bindings: a role that never changes and subjects with the fields their kind needs. */
export const bindingStrategy: Strategy = {
  nameRule: "path-segment",
  applyDefaults(object) {
    const role = objectAt(asJson(object), "roleRef");
    if (role !== undefined && !role["apiGroup"]) role["apiGroup"] = rbacGroup;
    for (const subject of listAt(asJson(object), "subjects")) {
      if (!isJsonObject(subject) || subject["apiGroup"] !== undefined) continue;
      if (subject["kind"] === "User" || subject["kind"] === "Group") subject["apiGroup"] = rbacGroup;
    }
  },
  validate: validateBinding,
  validateUpdate(object, old) {
    if (jsonEqual(asJson(object)["roleRef"], asJson(old)["roleRef"])) return [];
    return [invalid("roleRef", asJson(object)["roleRef"], "cannot change roleRef")];
  },
};

function validateBinding(object: KubeObject): FieldError[] {
  const errors: FieldError[] = [];
  const role = objectAt(asJson(object), "roleRef");
  const kinds = object.kind === "ClusterRoleBinding" ? ["ClusterRole"] : ["Role", "ClusterRole"];
  const kind = stringAt(role, "kind") ?? "";
  if (!kinds.includes(kind)) errors.push(notSupported("roleRef.kind", kind, kinds));
  if (!stringAt(role, "name")) errors.push(required("roleRef.name"));
  for (const [index, subject] of listAt(asJson(object), "subjects").entries()) {
    if (!isJsonObject(subject)) continue;
    const path = `subjects[${index}]`;
    if (!subject["name"]) errors.push(required(`${path}.name`));
    if (!["ServiceAccount", "User", "Group"].includes(stringAt(subject, "kind") ?? "")) {
      errors.push(notSupported(`${path}.kind`, subject["kind"], ["ServiceAccount", "User", "Group"]));
    }
    if (subject["kind"] === "ServiceAccount" && !subject["namespace"]) errors.push(required(`${path}.namespace`));
  }
  return errors;
}
