import { checkRule } from "../cel/compile-rule.ts";
import { isJsonObject, type JsonObject, listAt, objectAt, stringAt } from "../json/json.ts";
import { type FieldError, forbiddenField, invalid, required } from "../schema/field-error.ts";
import { goRegExp } from "../schema/go-regexp.ts";
import type { Schema } from "../schema/schema.ts";

/** Problems that keep a schema from being structural: every node typed, nothing hidden in junctors, rules that compile. */
export function validateStructural(root: JsonObject, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (root["type"] !== "object") errors.push(invalid(`${path}.type`, root["type"] ?? "", "must be object at the root"));
  checkNode(root, path, errors, true);
  return errors;
}

function checkNode(node: JsonObject, path: string, errors: FieldError[], isRoot = false): void {
  const isFree = node["x-kubernetes-preserve-unknown-fields"] === true || node["x-kubernetes-int-or-string"] === true;
  if (node["type"] === undefined && !isFree)
    errors.push(required(`${path}.type`, "must not be empty for specified object fields"));
  if (node["$ref"] !== undefined) errors.push(forbiddenField(`${path}.$ref`, "$ref is not supported"));
  if (node["additionalProperties"] === false)
    errors.push(forbiddenField(`${path}.additionalProperties`, "additionalProperties cannot be set to false"));
  if (node["uniqueItems"] === true)
    errors.push(
      forbiddenField(
        `${path}.uniqueItems`,
        "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
      ),
    );
  const pattern = stringAt(node, "pattern");
  if (pattern !== undefined && goRegExp(pattern) === undefined) {
    errors.push(invalid(`${path}.pattern`, pattern, "must be a valid regular expression"));
  }
  checkListType(node, path, errors);
  const isResource = isRoot || node["x-kubernetes-embedded-resource"] === true;
  checkRules(node, path, { errors, isResource });
  for (const [key, child] of Object.entries(objectAt(node, "properties") ?? {})) {
    if (isJsonObject(child)) checkNode(child, `${path}.properties[${key}]`, errors);
  }
  const items = objectAt(node, "items");
  if (items !== undefined) checkNode(items, `${path}.items`, errors);
  const values = objectAt(node, "additionalProperties");
  if (values !== undefined) checkNode(values, `${path}.additionalProperties`, errors);
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
    const problem = checkRule(text, { schema: node as unknown as Schema, isResource });
    if (problem !== undefined) errors.push(invalid(`${at}.rule`, rule, `compilation failed: ${problem}`));
  }
}
