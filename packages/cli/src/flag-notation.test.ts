import { expect, test } from "vitest";
import { isNegated, keyOf, readFlag } from "./flag-notation.ts";
import { readArguments } from "./parsing/argument-notation.ts";

test.each([
  ["--force", { short: undefined, long: "--force", valueName: undefined }, "force"],
  ["-o, --output <format>", { short: "-o", long: "--output", valueName: "format" }, "output"],
  ["--router-url <url>", { short: undefined, long: "--router-url", valueName: "url" }, "routerUrl"],
  ["--no-wait", { short: undefined, long: "--no-wait", valueName: undefined }, "wait"],
  ["--volume <path:size>", { short: undefined, long: "--volume", valueName: "path:size" }, "volume"],
])("readFlag: %s", (flag, read, key) => {
  expect(readFlag({ flag })).toEqual(read);
  expect(keyOf(readFlag({ flag }))).toBe(key);
  expect(isNegated(readFlag({ flag }))).toBe(flag.startsWith("--no-"));
});

test.each(["", "-o", "output", "--output format", "-out, --output", "--output <a> <b>"])(
  "readFlag: '%s' is a mistake of whoever wrote it",
  (flag) => {
    expect(() => readFlag({ flag })).toThrow("is no flag");
  },
);

test("readArguments: brackets say what is needed, dots what takes the rest", () => {
  expect(readArguments("<kind-or-sandbox> [name] [others...]")).toEqual([
    { name: "kind-or-sandbox", isRequired: true, isVariadic: false },
    { name: "name", isRequired: false, isVariadic: false },
    { name: "others", isRequired: false, isVariadic: true },
  ]);
  expect(readArguments("<names...>")).toEqual([{ name: "names", isRequired: true, isVariadic: true }]);
  expect(readArguments()).toEqual([]);
});
