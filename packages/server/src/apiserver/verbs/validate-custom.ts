import { asJson, isJsonObject, type JsonObject, type JsonValue, type KubeObject } from "@agent-sandbox/api";
import { validateRules } from "../cel/validate-rules.ts";
import type { ScalePaths } from "../registry/resource-definition.ts";
import { type FieldError, invalid, required } from "../schema/field-error.ts";
import { factsOf, fieldSchema, type Schema } from "../schema/schema.ts";
import { validateSchema } from "../schema/validate.ts";
import type { RequestScope } from "../scope/scope.ts";

/** All problems of a custom object: its schema, its replica counts, objects inside it, its lists, then its rules. */
export function validateCustom(scope: RequestScope, object: KubeObject, old: KubeObject | undefined): FieldError[] {
  const value = asJson(object);
  const { schema, scale } = scope.version;
  const isStatus = scope.subresource === "status";
  const found = isStatus ? statusErrors(value, schema) : validateSchema(value, schema);
  const errors = found.filter(({ type }) => type !== "FieldValueDuplicate");
  if (scale !== undefined) errors.push(...scaleErrors(value, scale, isStatus));
  errors.push(...embeddedErrors(value, schema, ""));
  errors.push(...found.filter(({ type }) => type === "FieldValueDuplicate"));
  if (!factsOf(schema).hasRules) return errors;
  if (errors.some(({ type }) => blocking.has(type))) return [...errors, rulesNotChecked];
  return [...errors, ...validateRules({ value, oldValue: old === undefined ? undefined : asJson(old), schema })];
}

/** Problems after which rules are not evaluated, because their types rely on the schema. */
const blocking: ReadonlySet<string> = new Set([
  "FieldValueNotSupported",
  "FieldValueRequired",
  "FieldValueTooLong",
  "FieldValueTooMany",
  "FieldValueTypeInvalid",
]);

/** Said where a broken object kept its rules from being evaluated. */
const rulesNotChecked: FieldError = {
  type: "FieldValueInvalid",
  field: "<nil>",
  body: "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
};

/** Of a write to the status alone, only the status is checked, and named from there on. */
function statusErrors(value: JsonObject, schema: Schema): FieldError[] {
  const statusSchema = fieldSchema(schema, "status");
  const status = value["status"];
  if (statusSchema === undefined || status === undefined) return [];
  return validateSchema(status, statusSchema).map((error) => ({
    ...error,
    field: error.field === "" || error.field === "<nil>" ? "status" : `status.${error.field}`,
  }));
}

/** Largest replica count: Kubernetes counts in int32. */
const replicasMax = 2 ** 31 - 1;

function scaleErrors(value: JsonObject, scale: ScalePaths, isStatus: boolean): FieldError[] {
  const paths = isStatus ? [scale.statusReplicasPath] : [scale.specReplicasPath, scale.statusReplicasPath];
  return paths.flatMap((path) => {
    const count = nested(value, path);
    if (count === undefined) return [];
    if (typeof count !== "number" || !Number.isInteger(count)) {
      const problem = `${path} accessor error: ${goText(count)} is of the type ${goTypeOf(count)}, expected int64`;
      return [invalid(path, 0, problem)];
    }
    if (count < 0) return [invalid(path, count, "should be a non-negative integer")];
    return count > replicasMax ? [invalid(path, count, `should be less than or equal to ${replicasMax}`)] : [];
  });
}

function nested(value: JsonObject, path: string): JsonValue | undefined {
  let at: JsonValue | undefined = value;
  for (const key of path.split(".").filter((part) => part !== "")) at = isJsonObject(at) ? at[key] : undefined;
  return at;
}

function goTypeOf(value: JsonValue): string {
  if (value === null) return "<nil>";
  if (Array.isArray(value)) return "[]interface {}";
  switch (typeof value) {
    case "string":
      return "string";
    case "boolean":
      return "bool";
    case "number":
      return "float64";
    default:
      return "map[string]interface {}";
  }
}

function goText(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** An object inside an object must say what it is. */
function embeddedErrors(value: JsonValue | undefined, schema: Schema, path: string): FieldError[] {
  if (!factsOf(schema).hasEmbedded) return [];
  if (Array.isArray(value)) {
    const { items } = schema;
    return items === undefined ? [] : value.flatMap((item, index) => embeddedErrors(item, items, `${path}[${index}]`));
  }
  if (!isJsonObject(value)) return [];
  const own = schema["x-kubernetes-embedded-resource"] === true ? ["apiVersion", "kind"] : [];
  const errors = own.filter((key) => !value[key]).map((key) => required(`${path}.${key}`));
  for (const [key, item] of Object.entries(value)) {
    const child = fieldSchema(schema, key);
    if (child !== undefined) errors.push(...embeddedErrors(item, child, path === "" ? key : `${path}.${key}`));
  }
  return errors;
}
