import { expect, test } from "vitest";
import { expandReferences } from "./expand.ts";

const values = new Map([
  ["A", "1"],
  ["EMPTY", ""],
]);

test.each([
  ["plain", "plain"],
  ["$(A)", "1"],
  ["x$(A)y$(A)", "x1y1"],
  ["$$(A)", "$(A)"],
  ["$$$(A)", "$1"],
  ["$(MISSING)", "$(MISSING)"],
  ["$(EMPTY)!", "!"],
  ["$A", "$A"],
  ["$(A", "$(A"],
  ["end$", "end$"],
  ["$$", "$"],
])("expandReferences: %s becomes %s", (text, expanded) => {
  expect(expandReferences(text, values)).toBe(expanded);
});
