import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parseRule } from "../../packages/server/src/apiserver/cel/compile-rule.ts";
import { declaredType } from "../../packages/server/src/apiserver/cel/declared-type.ts";
import { estimateCost } from "../../packages/server/src/apiserver/cel/estimate-cost.ts";
import { priceRules } from "../../packages/server/src/apiserver/crd/price-rules.ts";
import type { Schema } from "../../packages/server/src/apiserver/schema/schema.ts";
import { costRules } from "./cel-cost-rules.ts";

const golden = JSON.parse(readFileSync(new URL("golden/cel-costs.json", import.meta.url), "utf8")) as ReadonlyArray<
  ReadonlyArray<{ readonly cost: number }>
>;

const rows = costRules.flatMap((schema: Schema, index) =>
  (schema["x-kubernetes-validations"] ?? []).map(
    ({ rule }, at) => [JSON.stringify(schema.type), rule, schema, golden[index]?.[at]?.cost] as const,
  ),
);

test.each(rows)("estimateCost: of %s: %s", (_type, rule, schema, wanted) => {
  const type = declaredType(schema, false);
  const ast = parseRule(rule);
  if (type === undefined || ast === undefined) throw new Error("the rule is none");
  const cost = estimateCost(ast, type) ?? Number.NaN;
  // Beyond what a double counts one by one, only the size matters.
  expect(Math.abs(cost - (wanted ?? 0)) / Math.max(1, wanted ?? 0)).toBeLessThan(1e-9);
});

const quadratic = { rule: "self.all(x, self.all(y, x == y))" };
const strings = { type: "array", items: { type: "string" } };

test("priceRules: a rule that grows with the square of a list without bound is refused", () => {
  const schema = { type: "object", properties: { names: { ...strings, "x-kubernetes-validations": [quadratic] } } };
  const [first, second, third] = priceRules(schema, "schema");
  const place = "schema.properties[names].x-kubernetes-validations[0].rule";
  expect(first).toMatchObject({ type: "FieldValueForbidden", field: place });
  expect(first?.body).toContain("estimated rule cost exceeds budget by factor of more than 100x");
  expect(second).toMatchObject({ field: place });
  expect(third).toMatchObject({ field: "schema" });
});

test("priceRules: bounds on the list make the same rule affordable", () => {
  const bounded = { type: "array", maxItems: 16, items: { type: "string", maxLength: 64 } };
  const schema = { type: "object", properties: { names: { ...bounded, "x-kubernetes-validations": [quadratic] } } };
  expect(priceRules(schema, "schema")).toEqual([]);
});
