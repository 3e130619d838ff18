import { expect, test } from "vitest";
import { compileRule } from "./compile-rule.ts";
import { ruleCostMax } from "./cost-budget.ts";

function costOf(rule: string, self: unknown): number {
  const compiled = compileRule(rule, {});
  if (compiled.kind === "error") throw new Error(compiled.message);
  const result = compiled.evaluate({ self, oldSelf: null }, ruleCostMax);
  expect(
    result.kind,
    JSON.stringify(result, (_, value: unknown) => String(value)),
  ).toBe("value");
  return result.cost;
}

test.each([
  ["true", null, 0],
  ["self.a == 1", { a: 1n }, 3],
  ["self.a.b == self.c", { a: { b: 1n }, c: 1n }, 6],
  ["[1, 2, 3].size() == 3", null, 12],
  ["has(self.a) && self.a > 0", { a: 1n }, 5],
])("rule cost: %s", (rule, self, cost) => {
  expect(costOf(rule, self)).toBe(cost);
});

test("rule cost: searching a text costs with both lengths", () => {
  const short = costOf("self.contains('ab')", "x".repeat(100));
  expect(costOf("self.contains('ab')", "x".repeat(1_000)) - short).toBe(90);
});

test("rule cost: every item of a walk is charged", () => {
  const walk = (items: number) =>
    costOf(
      "self.all(x, x == 'a')",
      Array.from({ length: items }, () => "a"),
    );
  expect(walk(20) - walk(10)).toBe(walk(30) - walk(20));
  expect(walk(20) - walk(10)).toBe(50);
});

test("rule cost: beyond the budget an evaluation is cancelled in Kubernetes' words", () => {
  const compiled = compileRule("self.all(x, self.all(y, self.exists(z, z == 'last')))", {});
  const self = Array.from({ length: 110 }, (_, index) => (index === 109 ? "last" : `n${index}`));
  const result = compiled.kind === "rule" ? compiled.evaluate({ self, oldSelf: null }, ruleCostMax) : undefined;
  expect(result).toMatchObject({ kind: "exceeded", message: "operation cancelled: actual cost limit exceeded" });
});
