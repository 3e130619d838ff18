import fc from "fast-check";
import { expect, test } from "vitest";
import { labelSelectorOf, matchesLabels, parseLabelSelector } from "./label-selector.ts";
import { formatLabelSelector } from "./testing/format-selectors.ts";

test.each<[string, Record<string, string>, boolean]>([
  ["", { a: "b" }, true],
  ["a=b", { a: "b" }, true],
  ["a==b", { a: "b" }, true],
  ["a=b", { a: "c" }, false],
  ["a=b", {}, false],
  ["a=", { a: "" }, true],
  ["a!=b", {}, true],
  ["a!=b", { a: "b" }, false],
  ["a in (b, c)", { a: "c" }, true],
  ["a in (b,c)", { a: "d" }, false],
  ["a in (,b)", { a: "" }, true],
  ["a notin (b,c)", {}, true],
  ["a notin (b,c)", { a: "b" }, false],
  ["a", { a: "" }, true],
  ["a", {}, false],
  ["!a", {}, true],
  ["! a", { a: "x" }, false],
  ["a>5", { a: "6" }, true],
  ["a>5", { a: "5" }, false],
  ["a<5", { a: "x" }, false],
  ["a=b,c!=d,e in (f)", { a: "b", c: "x", e: "f" }, true],
  ["agents.x-k8s.io/adoptable=true", { "agents.x-k8s.io/adoptable": "true" }, true],
  ["in in (in)", { in: "in" }, true],
  ["constructor", {}, false],
])("matchesLabels: %j on %j is %s", (text, labels, expected) => {
  expect(matchesLabels(parseLabelSelector(text), labels)).toBe(expected);
});

test.each([
  ",",
  "a,",
  "a=b c",
  "a in b",
  "a in (b",
  "a in ()b",
  "=b",
  "a=b=c",
  "a>x",
  "a=(",
  "!",
  "a=-",
  "/a=b",
  "a in (b c)",
])("parseLabelSelector: refuses %j", (text) => {
  expect(() => parseLabelSelector(text)).toThrow(SyntaxError);
});

test("labelSelectorOf: no selector selects nothing and an empty one everything", () => {
  expect(matchesLabels(labelSelectorOf(undefined), {})).toBe(false);
  expect(matchesLabels(labelSelectorOf({}), {})).toBe(true);
});

test("labelSelectorOf: labels and expressions must all hold", () => {
  const selector = labelSelectorOf({
    matchLabels: { a: "b" },
    matchExpressions: [
      { key: "c", operator: "NotIn", values: ["d"] },
      { key: "e", operator: "Exists" },
      { key: "f", operator: "DoesNotExist" },
    ],
  });
  expect(matchesLabels(selector, { a: "b", e: "" })).toBe(true);
  expect(matchesLabels(selector, { a: "b", e: "", f: "" })).toBe(false);
  expect(() => labelSelectorOf({ matchExpressions: [{ key: "a", operator: "In" }] })).toThrow("at least one value");
  expect(() => labelSelectorOf({ matchExpressions: [{ key: "a", operator: "Like" }] })).toThrow("is not an operator");
});

test("formatLabelSelector: sorts keys and sets", () => {
  expect(formatLabelSelector(parseLabelSelector("z notin (b,a),!y,x,w>1,v=1,u!=2"))).toBe(
    "u!=2,v=1,w>1,x,!y,z notin (a,b)",
  );
});

test("formatLabelSelector: parses back to the same selector", () => {
  const word = fc.stringMatching(/^[a-z]([a-z0-9]{0,5}[a-z0-9])?$/);
  const requirement = fc.oneof(
    fc.record({
      key: word,
      operator: fc.constantFrom("in" as const, "notin" as const),
      values: fc.uniqueArray(word, { minLength: 1, maxLength: 3 }).map((v) => v.sort()),
    }),
    fc.record({ key: word, operator: fc.constantFrom("exists" as const, "absent" as const) }),
    fc.record({ key: word, operator: fc.constantFrom("gt" as const, "lt" as const), value: fc.bigInt(-100n, 100n) }),
  );
  fc.assert(
    fc.property(fc.uniqueArray(requirement, { selector: (r) => r.key }), (selector) => {
      const text = formatLabelSelector(selector);
      expect(formatLabelSelector(parseLabelSelector(text))).toBe(text);
      expect(parseLabelSelector(text)).toHaveLength(selector.length);
    }),
  );
});
