import { validateRules } from "../cel/validate-rules.ts";
import { type ApiObject, asJson } from "../object.ts";
import type { RequestScope } from "../request/scope.ts";
import { type FieldError, invalidObject } from "../schema/field-error.ts";
import { validateMetadata } from "../schema/metadata.ts";
import { factsOf } from "../schema/schema.ts";
import { validateSchema } from "../schema/validate.ts";

/** Checks an object before it is stored; throws Invalid (422) with one cause per problem. */
export function validateObject(scope: RequestScope, object: ApiObject, old: ApiObject | undefined): void {
  const errors = [...validateMetadata(object, scope.definition.strategy.nameRule ?? "subdomain")];
  if (old !== undefined) errors.push(...immutableMetadata(object, old));
  if (scope.definition.custom !== undefined) errors.push(...validateCustom(scope, object, old));
  const { strategy } = scope.definition;
  errors.push(...(strategy.validate?.(object) ?? []));
  if (old === undefined) errors.push(...(strategy.validateCreate?.(object) ?? []));
  // What may change through a subresource is the subresource's own business.
  if (old !== undefined && scope.subresource === "") errors.push(...(strategy.validateUpdate?.(object, old) ?? []));
  if (errors.length === 0) return;
  const { group, kind } = scope.definition;
  throw invalidObject({ group, kind, name: object.metadata.name ?? "" }, errors);
}

/** Rules run only on objects that fit their schema, because their types rely on it. */
function validateCustom(scope: RequestScope, object: ApiObject, old: ApiObject | undefined): FieldError[] {
  const value = asJson(object);
  const schema = scope.version.schema;
  const errors = validateSchema(value, schema);
  if (errors.length > 0) return factsOf(schema).hasRules ? [...errors, rulesNotChecked] : errors;
  return validateRules({ value, oldValue: old === undefined ? undefined : asJson(old), schema });
}

/** Said where a broken object kept its rules from being evaluated. */
const rulesNotChecked: FieldError = {
  type: "FieldValueInvalid",
  field: "<nil>",
  body: "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
};

function immutableMetadata(object: ApiObject, old: ApiObject): FieldError[] {
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
      errors.push({
        type: "FieldValueForbidden",
        field: "metadata.finalizers",
        body: `Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{${added.map((f) => JSON.stringify(f)).join(", ")}}`,
      });
    }
  }
  return errors;
}
