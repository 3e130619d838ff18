import { isJsonObject, type JsonObject } from "@agent-sandbox/api";
import { checkRule } from "../cel/compile-rule.ts";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import { type FieldError, forbiddenField, invalid, required } from "../schema/field-error.ts";
import { goRegExpProblem } from "../schema/go-regexp.ts";
import type { Schema } from "../schema/schema.ts";
import { validateSchema } from "../schema/validate.ts";

/** Problems that keep a schema from being structural: every node typed, nothing hidden in junctors, rules that compile. */
export function validateStructural(root: JsonObject, path: string): FieldError[] {
  const errors: FieldError[] = [];
  checkNode(root, path, { errors, level: "at the root" });
  if (root["type"] !== undefined && root["type"] !== "object")
    errors.push(invalid(`${path}.type`, root["type"], "must be object at the root"));
  return errors;
}

interface NodeCheck {
  readonly errors: FieldError[];
  /** Where the node stands, in the words of the refusal of one without a type. */
  readonly level: "at the root" | "for specified array items" | "for specified object fields";
}

/** Children first, as Kubernetes lists what it finds. */
function checkNode(node: JsonObject, path: string, { errors, level }: NodeCheck): void {
  const items = objectAt(node, "items");
  if (items !== undefined) checkNode(items, `${path}.items`, { errors, level: "for specified array items" });
  for (const [key, child] of Object.entries(objectAt(node, "properties") ?? {})) {
    if (isJsonObject(child))
      checkNode(child, `${path}.properties[${key}]`, { errors, level: "for specified object fields" });
  }
  const values = objectAt(node, "additionalProperties");
  if (values !== undefined)
    checkNode(values, `${path}.additionalProperties`, { errors, level: "for specified object fields" });
  const isFree = node["x-kubernetes-preserve-unknown-fields"] === true || node["x-kubernetes-int-or-string"] === true;
  if (node["type"] === undefined && !isFree) errors.push(required(`${path}.type`, `must not be empty ${level}`));
  checkShape(node, path, errors);
  checkJunctors(node, path, errors);
  checkListType(node, path, errors);
  checkDefault(node, path, errors);
  const isResource = level === "at the root" || node["x-kubernetes-embedded-resource"] === true;
  checkRules(node, path, { errors, isResource });
}

function checkShape(node: JsonObject, path: string, errors: FieldError[]): void {
  if (node["$ref"] !== undefined) errors.push(forbiddenField(`${path}.$ref`, "$ref is not supported"));
  if (node["additionalProperties"] === false)
    errors.push(forbiddenField(`${path}.additionalProperties`, "additionalProperties cannot be set to false"));
  else if (node["additionalProperties"] !== undefined && Object.keys(objectAt(node, "properties") ?? {}).length > 0)
    errors.push(
      forbiddenField(`${path}.additionalProperties`, "additionalProperties and properties are mutual exclusive"),
    );
  if (node["uniqueItems"] === true)
    errors.push(
      forbiddenField(
        `${path}.uniqueItems`,
        "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
      ),
    );
  if (node["type"] === "array" && node["items"] === undefined)
    errors.push(required(`${path}.items`, "must be specified"));
  const pattern = stringAt(node, "pattern");
  const problem = pattern === undefined ? undefined : goRegExpProblem(pattern);
  if (problem !== undefined)
    errors.push(
      invalid(
        `${path}.pattern`,
        pattern,
        `must be a valid regular expression, but isn't: error parsing regexp: ${problem}`,
      ),
    );
}

/** What may stand only where the schema says what a value is, never where it says which values are right. */
const structure = ["description", "type", "default", "nullable"];

function checkJunctors(node: JsonObject, path: string, errors: FieldError[]): void {
  const branches: (readonly [string, JsonObject | undefined])[] = [[`${path}.not`, objectAt(node, "not")]];
  for (const junctor of ["allOf", "anyOf", "oneOf"]) {
    for (const [index, branch] of listAt(node, junctor).entries())
      if (isJsonObject(branch)) branches.push([`${path}.${junctor}[${index}]`, branch]);
  }
  const isIntOrString = node["x-kubernetes-int-or-string"] === true;
  for (const [at, branch] of branches) {
    if (branch === undefined) continue;
    checkJunctors(branch, at, errors);
    for (const key of structure) {
      // The one type that is spelt as a choice of two.
      if (key === "type" && isIntOrString) continue;
      if (branch[key] !== undefined && branch[key] !== "" && branch[key] !== false)
        errors.push(forbiddenField(`${at}.${key}`, "must be empty to be structural"));
    }
  }
}

/** A default must fit its own schema, or every object that relies on it is refused. */
function checkDefault(node: JsonObject, path: string, errors: FieldError[]): void {
  const value = node["default"];
  if (value === undefined || value === null) return;
  for (const error of validateSchema(value, node as Schema)) {
    const inner = error.field === "" || error.field === "<nil>" ? "" : `.${error.field}`;
    errors.push({ ...error, field: `${path}.default${inner}` });
  }
}

function checkListType(node: JsonObject, path: string, errors: FieldError[]): void {
  if (node["x-kubernetes-list-type"] !== "map") return;
  const keys = listAt(node, "x-kubernetes-list-map-keys").map(String);
  const item = objectAt(node, "items") ?? {};
  if (keys.length === 0) {
    errors.push(required(`${path}.x-kubernetes-list-map-keys`, "must not be empty if x-kubernetes-list-type is map"));
  }
  for (const key of keys) {
    if (!Object.hasOwn(objectAt(item, "properties") ?? {}, key)) {
      errors.push(invalid(`${path}.x-kubernetes-list-map-keys`, keys, "entries must all be names of item properties"));
    }
  }
}

function checkRules(
  node: JsonObject,
  path: string,
  { errors, isResource }: { errors: FieldError[]; isResource: boolean },
): void {
  for (const [index, rule] of listAt(node, "x-kubernetes-validations").entries()) {
    if (!isJsonObject(rule)) continue;
    const text = stringAt(rule, "rule") ?? "";
    const at = `${path}.x-kubernetes-validations[${index}]`;
    if (text.trim() === "") {
      errors.push(required(`${at}.rule`, "rule is not specified"));
      continue;
    }
    const problem = checkRule(text, { schema: node as Schema, isResource });
    if (problem !== undefined) errors.push(invalid(`${at}.rule`, rule, `compilation failed: ${problem}`));
  }
}
