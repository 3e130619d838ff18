import { expect, test } from "vitest";
import { annotationPatch, labelPatch } from "./metadata-patch.ts";

test("annotationPatch: sorts keys, keeps empty values and escapes as Go does", () => {
  expect(annotationPatch({ b: "", a: "<x>&" })).toBe(
    '{"metadata":{"annotations":{"a":"\\u003cx\\u003e\\u0026","b":""}}}',
  );
  expect(labelPatch({ a: "1" })).toBe('{"metadata":{"labels":{"a":"1"}}}');
});

test("annotationPatch: a patch of nothing is a bug", () => {
  expect(() => annotationPatch({})).toThrow("bug");
});
