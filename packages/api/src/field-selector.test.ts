import fc from "fast-check";
import { expect, test } from "vitest";
import { matchesFields, parseFieldSelector } from "./field-selector.ts";
import { formatFieldSelector } from "./testing/format-selectors.ts";

const pod: Record<string, string> = { "metadata.name": "a", "status.phase": "Running" };
const valueOf = (field: string) => pod[field] ?? "";

test.each([
  ["", true],
  ["metadata.name=a", true],
  ["metadata.name==a", true],
  ["metadata.name!=a", false],
  ["metadata.name=a,status.phase!=Pending", true],
  ["metadata.name=a,status.phase=Pending", false],
  ["spec.nodeName=", true],
  ["spec.nodeName!=", false],
])("matchesFields: %j is %s", (text, expected) => {
  expect(matchesFields(parseFieldSelector(text), valueOf)).toBe(expected);
});

test.each(["metadata.name", "=a", "a=b=c", "a=\\x"])("parseFieldSelector: refuses %j", (text) => {
  expect(() => parseFieldSelector(text)).toThrow(SyntaxError);
});

test("parseFieldSelector: a term without a field is refused", () => {
  expect(() => parseFieldSelector("a=b, =c")).toThrow("names no field");
});

test("formatFieldSelector: any value survives escaping", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom("a.b", "c"), fc.constantFrom("=" as const, "!=" as const), fc.string())),
      (terms) => {
        const selector = terms.map(([field, operator, value]) => ({ field, operator, value }));
        expect(parseFieldSelector(formatFieldSelector(selector))).toEqual(selector);
      },
    ),
  );
});
