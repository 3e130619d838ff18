import { isJsonObject, type JsonObject, type JsonValue } from "@agent-sandbox/api";
import { Optional } from "@marcbachmann/cel-js";
import { duplicate, type FieldError, forbiddenField, invalid, required } from "../schema/field-error.ts";
import { itemElement } from "../schema/path-element.ts";
import { factsOf, fieldSchema, listMapKeys, type Schema, type ValidationRule } from "../schema/schema.ts";
import { type Converted, celSelection, celValue, type Selection } from "./cel-value.ts";
import { compileRule } from "./compile-rule.ts";
import { objectCostMax, ruleCostMax } from "./cost-budget.ts";

/** What to check; `oldValue` is undefined on create. */
export interface RuleInput {
  readonly value: JsonValue;
  readonly oldValue: JsonValue | undefined;
  readonly schema: Schema;
}

/** Evaluates every `x-kubernetes-validations` rule of an object that fits its schema. */
export function validateRules({ value, oldValue, schema }: RuleInput): FieldError[] {
  if (!factsOf(schema).hasRules) return [];
  const walker = new RuleWalker();
  walker.visit({ value, oldValue, schema }, "");
  return walker.errors;
}

class RuleWalker {
  readonly errors: FieldError[] = [];
  #remaining = objectCostMax;
  readonly #converted: Converted = new WeakMap();

  visit(input: RuleInput, path: string): void {
    const { value, oldValue, schema } = input;
    if (this.#remaining < 0 || !factsOf(schema).hasRules) return;
    if (value === null) return;
    for (const rule of schema["x-kubernetes-validations"] ?? [])
      if (this.#remaining >= 0) this.#check(rule, input, path);
    if (Array.isArray(value)) this.#visitList(value, oldValue, { schema, path });
    else if (isJsonObject(value)) this.#visitObject(value, oldValue, { schema, path });
  }

  #visitObject(value: JsonObject, oldValue: JsonValue | undefined, at: { schema: Schema; path: string }): void {
    const old = isJsonObject(oldValue) ? oldValue : undefined;
    for (const [key, item] of Object.entries(value)) {
      const child = fieldSchema(at.schema, key);
      if (child === undefined || item === undefined) continue;
      const isField = Object.hasOwn(at.schema.properties ?? {}, key);
      const path = isField ? (at.path === "" ? key : `${at.path}.${key}`) : `${at.path}[${key}]`;
      this.visit({ value: item, oldValue: old?.[key], schema: child }, path);
    }
  }

  /** Only entries of associative lists have an old counterpart: entries of other lists have no identity. */
  #visitList(value: JsonValue[], oldValue: JsonValue | undefined, at: { schema: Schema; path: string }): void {
    const items = at.schema.items;
    if (items === undefined) return;
    const old = new Map<string, JsonValue>();
    if (listMapKeys(at.schema) !== undefined && Array.isArray(oldValue)) {
      for (const item of oldValue) old.set(itemElement(item, at.schema) ?? "", item);
    }
    for (const [index, item] of value.entries()) {
      const before = old.get(itemElement(item, at.schema) ?? "");
      this.visit({ value: item, oldValue: before, schema: items }, `${at.path}[${index}]`);
    }
  }

  #check(rule: ValidationRule, { value, oldValue, schema }: RuleInput, path: string): void {
    const compiled = compileRule(rule.rule, schema);
    const type = schema.type ?? "object";
    if (compiled.kind === "error") {
      this.errors.push(invalid(path, type, `rule compile error: ${compiled.message}`));
      return;
    }
    const hasOld = oldValue !== undefined;
    if (compiled.usesOldSelf && !hasOld && rule.optionalOldSelf !== true) return;
    const selection = { schema, projection: compiled.projection, converted: this.#converted };
    const variables = {
      self: celSelection(value, selection),
      oldSelf: this.#oldSelf(rule, oldValue, selection),
    };
    const result = compiled.evaluate(variables, ruleCostMax);
    this.#remaining -= result.cost;
    const text = rule.message ?? rule.rule;
    if (this.#remaining < 0) {
      this.errors.push(
        invalid(
          path,
          type,
          "validation failed due to running out of cost budget, no further validation rules will be run",
        ),
      );
    } else if (result.kind === "exceeded") {
      this.#remaining = -1;
      this.errors.push(
        invalid(
          path,
          type,
          `'${result.message}': no further validation rules will be run due to call cost exceeds limit for rule: ${text}`,
        ),
      );
    } else if (result.kind === "error")
      this.errors.push(invalid(path, type, `${result.message} evaluating rule: ${text}`));
    else if (result.value !== true) this.#fail(rule, { value, oldValue, schema, path });
  }

  #oldSelf(rule: ValidationRule, oldValue: JsonValue | undefined, selection: Selection): unknown {
    const old = oldValue === undefined ? undefined : celSelection(oldValue, selection);
    if (rule.optionalOldSelf !== true) return old ?? null;
    return old === undefined ? Optional.none() : Optional.of(old);
  }

  #fail(rule: ValidationRule, failure: RuleInput & { path: string }): void {
    const { value, schema } = failure;
    const path = failure.path + (rule.fieldPath ?? "");
    const detail = this.#message(rule, failure) ?? (rule.message?.trim() || `failed rule: ${rule.rule}`);
    const field = path.replace(/^\./, "") || "<nil>";
    switch (rule.reason) {
      case "FieldValueForbidden":
        this.errors.push(forbiddenField(field, detail));
        return;
      case "FieldValueRequired":
        this.errors.push(required(field, detail));
        return;
      case "FieldValueDuplicate":
        this.errors.push(duplicate(field, value));
        return;
      default:
        this.errors.push(
          schema.type === "object" || schema.type === "array"
            ? { type: "FieldValueInvalid", field, body: `Invalid value: ${detail}` }
            : invalid(field, value, detail),
        );
    }
  }

  #message(rule: ValidationRule, { value, oldValue, schema }: RuleInput): string | undefined {
    if (rule.messageExpression === undefined) return undefined;
    const compiled = compileRule(rule.messageExpression, {});
    if (compiled.kind === "error") return undefined;
    const variables = {
      self: celValue(value, schema, this.#converted),
      oldSelf: celValue(oldValue, schema, this.#converted),
    };
    const result = compiled.evaluate(variables, ruleCostMax);
    this.#remaining -= result.cost;
    if (result.kind !== "value" || typeof result.value !== "string") return undefined;
    const text = result.value.trim();
    return text === "" || text.includes("\n") ? undefined : text;
  }
}
