import fc from "fast-check";
import { expect, test } from "vitest";
import { JsonSyntaxError, parseJson, parseJsonText } from "./parse-json.ts";

test("parseJson: agrees with the engine's parser on every document", () => {
  fc.assert(
    fc.property(fc.json(), (text) => {
      const hasProto = text.includes("__proto__") || text.includes("\\u0000");
      const hasLarge = /\d{16,}/.test(text);
      if (hasProto || hasLarge) return;
      expect(parseJsonText(text).value).toEqual(JSON.parse(JSON.stringify(JSON.parse(text)).toWellFormed()));
    }),
    { seed: 4_711, numRuns: 500 },
  );
});

test("parseJson: any bytes are parsed or refused, never anything else", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      try {
        parseJson(bytes);
      } catch (error) {
        expect(error).toBeInstanceOf(JsonSyntaxError);
      }
    }),
    { seed: 4_712, numRuns: 2_000 },
  );
});

test("parseJson: names duplicate keys by their path; the last one wins", () => {
  const { value, duplicates } = parseJsonText('{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}]}');
  expect(value).toEqual({ a: { b: 2 }, c: [{ d: 1 }] });
  expect(duplicates).toEqual(["a.b", "c[0].d"]);
});

test.each([
  ["a key that reaches the prototype", '{"__proto__":{"x":1}}'],
  ["an escaped key that reaches the prototype", '{"\\u005f_proto__":{}}'],
  ["a number beyond a double", "1e999"],
  ["an integer that a double cannot hold", "9007199254740993"],
  ["an integer beyond what a double can hold", "12345678901234567890"],
  ["NUL in a string", '"a\\u0000b"'],
  ["a raw control character", '"a\u0001b"'],
  ["a depth without end", `${"[".repeat(5_000)}${"]".repeat(5_000)}`],
  ["a trailing comma", "[1,]"],
  ["a second document", "{} {}"],
  ["a leading zero", "01"],
  ["nothing", ""],
])("parseJson: refuses %s", (_what, text) => {
  expect(() => parseJsonText(text)).toThrow(JsonSyntaxError);
});

test("parseJson: refuses a byte order mark, as Kubernetes does", () => {
  expect(() => parseJson(Buffer.from("\ufeff{}"))).toThrow("invalid character");
});

test("parseJson: refuses bytes that are not UTF-8", () => {
  expect(() => parseJson(Uint8Array.from([0x22, 0xff, 0x22]))).toThrow(JsonSyntaxError);
});
