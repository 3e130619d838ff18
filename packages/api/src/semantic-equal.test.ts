import fc from "fast-check";
import { expect, test } from "vitest";
import { semanticEqual } from "./semantic-equal.ts";

test.each<[string, unknown, unknown, boolean]>([
  ["absent and null", {}, { a: null }, true],
  ["absent and empty list", {}, { a: [] }, true],
  ["absent and empty map", { a: {} }, {}, true],
  ["null and empty list", { a: null }, { a: [] }, true],
  ["absent and empty text", {}, { a: "" }, false],
  ["absent and false", {}, { a: false }, false],
  ["absent and zero", {}, { a: 0 }, false],
  ["lists in another order", [1, 2], [2, 1], false],
  ["lists of different length", [1], [1, 1], false],
  ["list and map", { a: [1] }, { a: { 0: 1 } }, false],
  ["quantities of one value", { requests: { memory: "1024Mi" } }, { requests: { memory: "1Gi" } }, true],
  ["quantities of two values", { requests: { memory: "1024Mi" } }, { requests: { memory: "1G" } }, false],
  ["a quantity as a number", { limits: { cpu: 1 } }, { limits: { cpu: "1000m" } }, true],
  ["labels that look like quantities", { labels: { limits: "1000m" } }, { labels: { limits: "1" } }, false],
  [
    "annotations under a quantity word",
    { annotations: { "a/limits": "1k" } },
    { annotations: { "a/limits": "1000" } },
    false,
  ],
  ["text that looks like a quantity", { value: "1000m" }, { value: "1" }, false],
  [
    "times of one instant",
    { lastTransitionTime: "2026-01-01T00:00:00Z" },
    { lastTransitionTime: "2026-01-01T01:00:00+01:00" },
    true,
  ],
  ["times of two instants", { shutdownTime: "2026-01-01T00:00:00Z" }, { shutdownTime: "2026-01-01T00:00:01Z" }, false],
  ["a volume with and without emptyDir", { name: "x", emptyDir: {} }, { name: "x" }, false],
  ["a secure default and a closed policy", { networkPolicy: {} }, {}, false],
  ["emptyDir with an empty field", { emptyDir: {} }, { emptyDir: { medium: null } }, true],
])("semanticEqual: %s", (_what, a, b, equal) => {
  expect(semanticEqual(a, b)).toBe(equal);
  expect(semanticEqual(b, a)).toBe(equal);
});

test("semanticEqual: every JSON value equals its copy", () => {
  fc.assert(fc.property(fc.jsonValue(), (value) => semanticEqual(value, JSON.parse(JSON.stringify(value)))));
});
