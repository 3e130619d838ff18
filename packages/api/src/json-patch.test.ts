import fc from "fast-check";
import { expect, test } from "vitest";
import { jsonPatch } from "./json-patch.ts";
import { parseJsonPointer, valueAtPointer } from "./json-pointer.ts";
import type { JsonValue } from "./json-value.ts";

test.each<[string, JsonValue, unknown, JsonValue]>([
  ["adds a member", { a: 1 }, [{ op: "add", path: "/b", value: 2 }], { a: 1, b: 2 }],
  ["adds over a member", { a: 1 }, [{ op: "add", path: "/a", value: 2 }], { a: 2 }],
  ["adds into a list", [1, 3], [{ op: "add", path: "/1", value: 2 }], [1, 2, 3]],
  ["adds at the end of a list", [1], [{ op: "add", path: "/-", value: 2 }], [1, 2]],
  ["adds at the length of a list", [1], [{ op: "add", path: "/1", value: 2 }], [1, 2]],
  ["adds the whole document", { a: 1 }, [{ op: "add", path: "", value: [] }], []],
  ["adds null", {}, [{ op: "add", path: "/a", value: null }], { a: null }],
  ["removes a member", { a: 1, b: 2 }, [{ op: "remove", path: "/a" }], { b: 2 }],
  ["removes from a list", [1, 2], [{ op: "remove", path: "/0" }], [2]],
  ["replaces deeply", { a: [{ b: 1 }] }, [{ op: "replace", path: "/a/0/b", value: 2 }], { a: [{ b: 2 }] }],
  ["moves", { a: { b: 1 }, c: {} }, [{ op: "move", from: "/a/b", path: "/c/d" }], { a: {}, c: { d: 1 } }],
  ["moves within a list", [1, 2, 3], [{ op: "move", from: "/0", path: "/2" }], [2, 3, 1]],
  ["copies", { a: [1] }, [{ op: "copy", from: "/a", path: "/b" }], { a: [1], b: [1] }],
  [
    "tests and goes on",
    { a: { b: [1] } },
    [
      { op: "test", path: "/a", value: { b: [1] } },
      { op: "remove", path: "/a" },
    ],
    {},
  ],
  [
    "unescapes tokens",
    { "a/b": { "c~d": 1 } },
    [{ op: "replace", path: "/a~1b/c~0d", value: 2 }],
    { "a/b": { "c~d": 2 } },
  ],
  [
    "keeps an odd key ordinary",
    {},
    [{ op: "add", path: "/__proto__", value: 1 }],
    JSON.parse('{"__proto__":1}') as JsonValue,
  ],
])("jsonPatch: %s", (_what, document, operations, expected) => {
  const before = JSON.stringify(document);
  expect(jsonPatch(document, operations)).toEqual(expected);
  expect(JSON.stringify(document)).toBe(before);
});

test.each<[string, JsonValue, unknown, string]>([
  ["a failed test", { a: 1 }, [{ op: "test", path: "/a", value: 2 }], "test-failed"],
  ["a test of nothing", {}, [{ op: "test", path: "/a", value: null }], "test-failed"],
  ["a missing member", {}, [{ op: "remove", path: "/a" }], "missing"],
  ["a replacement of nothing", {}, [{ op: "replace", path: "/a", value: 1 }], "missing"],
  ["a missing parent", {}, [{ op: "add", path: "/a/b", value: 1 }], "missing"],
  ["a place beyond the list", [1], [{ op: "add", path: "/2", value: 1 }], "missing"],
  ["an index with a leading zero", [1, 2], [{ op: "remove", path: "/01" }], "missing"],
  ["the end as a place to remove", [1], [{ op: "remove", path: "/-" }], "missing"],
  ["an unknown operation", {}, [{ op: "merge", path: "/a" }], "malformed"],
  ["an operation without a value", {}, [{ op: "add", path: "/a" }], "malformed"],
  ["a pointer without a slash", {}, [{ op: "add", path: "a", value: 1 }], "malformed"],
  ["a bad escape", {}, [{ op: "add", path: "/~2", value: 1 }], "malformed"],
  ["a move into itself", { a: {} }, [{ op: "move", from: "/a", path: "/a/b" }], "malformed"],
  ["no list", {}, { op: "add" }, "malformed"],
  ["an inherited name", {}, [{ op: "remove", path: "/constructor" }], "missing"],
])("jsonPatch: refuses %s", (_what, document, operations, code) => {
  expect(() => jsonPatch(document, operations)).toThrow(expect.objectContaining({ name: "PatchError", code }));
});

test("jsonPatch: copies cannot double a document without end", () => {
  const doubling = Array.from({ length: 40 }, () => [
    { op: "copy", from: "/a", path: "/a/-" },
    { op: "copy", from: "/a", path: "/a/-" },
  ]).flat();
  expect(() => jsonPatch({ a: ["x".repeat(100)] }, doubling)).toThrow("copies too much");
});

const escapeToken = (token: string) => token.replaceAll("~", "~0").replaceAll("/", "~1");

test("parseJsonPointer: any token survives escaping", () => {
  fc.assert(
    fc.property(fc.array(fc.string()), (tokens) => {
      expect(parseJsonPointer(tokens.map((token) => `/${escapeToken(token)}`).join(""))).toEqual(tokens);
    }),
  );
});

test("valueAtPointer: leads nowhere outside the document", () => {
  expect(valueAtPointer({ a: [{ b: 1 }] }, "/a/0/b")).toBe(1);
  expect(valueAtPointer({ a: 1 }, "/a/b")).toBeUndefined();
  expect(valueAtPointer({}, "/toString")).toBeUndefined();
});
