import type { KubeObject } from "@agent-sandbox/api";
import { type FieldError, forbiddenField, invalidObject } from "../schema/field-error.ts";
import { validateMetadata } from "../schema/metadata.ts";
import type { RequestScope } from "../scope/scope.ts";
import { validateCustom } from "./validate-custom.ts";

/** Checks an object before it is stored; throws Invalid (422) with one cause per problem. */
export function validateObject(scope: RequestScope, object: KubeObject, old: KubeObject | undefined): void {
  const errors = [...validateMetadata(object, scope.definition.strategy.nameRule ?? "subdomain")];
  if (old !== undefined) errors.push(...immutableMetadata(object, old, scope.definition.custom === undefined));
  if (scope.definition.custom !== undefined) errors.push(...validateCustom(scope, object, old));
  const { strategy } = scope.definition;
  errors.push(...(strategy.validate?.(object) ?? []));
  if (old === undefined) errors.push(...(strategy.validateCreate?.(object) ?? []));
  // What may change through a subresource is the subresource's own business.
  if (old !== undefined && scope.subresource === "") errors.push(...(strategy.validateUpdate?.(object, old) ?? []));
  if (errors.length === 0) return;
  const { kind, storedAs, group } = scope.definition;
  throw invalidObject({ group: storedAs?.group ?? group, kind, name: object.metadata.name ?? "" }, errors);
}

function immutableMetadata(object: KubeObject, old: KubeObject, isBuiltin: boolean): FieldError[] {
  const errors: FieldError[] = [];
  if (object.metadata.name !== old.metadata.name) {
    errors.push({
      type: "FieldValueInvalid",
      field: "metadata.name",
      body: `Invalid value: ${JSON.stringify(object.metadata.name ?? "")}: field is immutable`,
    });
  }
  if (old.metadata.deletionTimestamp !== undefined) {
    const before = new Set(old.metadata.finalizers ?? []);
    const added = (object.metadata.finalizers ?? []).filter((finalizer) => !before.has(finalizer));
    if (added.length > 0) {
      const list = added.map((finalizer) => JSON.stringify(finalizer)).join(", ");
      const problem = `no new finalizers can be added if the object is being deleted, found new finalizers []string{${list}}`;
      const refusal = forbiddenField("metadata.finalizers", problem);
      // Kubernetes checks this once for all kinds and once more for each of its own.
      errors.push(refusal, ...(isBuiltin ? [refusal] : []));
    }
  }
  return errors;
}
