import fc from "fast-check";
import { expect, test } from "vitest";
import { isJsonObject, type JsonObject, type JsonValue } from "./json-value.ts";
import { createMergePatch, mergePatch } from "./merge-patch.ts";

test.each<[JsonValue, JsonValue, JsonValue]>([
  [{ a: "b" }, { a: "c" }, { a: "c" }],
  [{ a: "b" }, { b: "c" }, { a: "b", b: "c" }],
  [{ a: "b" }, { a: null }, {}],
  [{ a: "b", b: "c" }, { a: null }, { b: "c" }],
  [{ a: ["b"] }, { a: "c" }, { a: "c" }],
  [{ a: "c" }, { a: ["b"] }, { a: ["b"] }],
  [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }],
  [{ a: [{ b: "c" }] }, { a: [1] }, { a: [1] }],
  [
    ["a", "b"],
    ["c", "d"],
    ["c", "d"],
  ],
  [{ a: "b" }, ["c"], ["c"]],
  [{ a: "foo" }, null, null],
  [{ a: "foo" }, "bar", "bar"],
  [{ e: null }, { a: 1 }, { e: null, a: 1 }],
  [[1, 2], { a: "b", c: null }, { a: "b" }],
  [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
])("mergePatch: %j with %j is %j", (target, patch, expected) => {
  expect(mergePatch(target, patch)).toEqual(expected);
});

test("createMergePatch: sends null for what went and nothing for what stayed", () => {
  const from = { a: 1, b: { c: 1, d: [1] }, e: "x" };
  expect(createMergePatch(from, { a: 1, b: { c: 2, d: [1] } })).toEqual({ b: { c: 2 }, e: null });
  expect(createMergePatch(from, structuredClone(from))).toBeUndefined();
});

const withoutNull = (value: JsonValue): JsonValue => {
  if (Array.isArray(value)) return value;
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([k, v]) => (v === null || v === undefined ? [] : [[k, withoutNull(v)]])),
  );
};
const objects = fc
  .dictionary(fc.string(), fc.jsonValue())
  .map((value) => withoutNull(JSON.parse(JSON.stringify(value)) as JsonValue) as JsonObject);

test("createMergePatch: applied to the first it gives the second", () => {
  fc.assert(
    fc.property(objects, objects, (from, to) => {
      const patch = createMergePatch(from, to);
      expect(patch === undefined ? from : mergePatch(from, patch)).toEqual(to);
    }),
  );
});
