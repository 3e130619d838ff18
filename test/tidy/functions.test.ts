import { expect, test } from "vitest";
import { findLongFunctions } from "./functions.ts";

const body = (lines: number): string => "  work();\n".repeat(lines);

test("findLongFunctions: finds a function over the limit and says where", () => {
  const text = `const a = 1;\nexport async function long(): Promise<void> {\n${body(70)}}\n`;
  expect(findLongFunctions("x.ts", text, 70)).toEqual(["x.ts:2 has 72 lines"]);
});

test("findLongFunctions: finds a long method and a long arrow function", () => {
  const method = `class A {\n  async handle(request: Request): Promise<void> {\n${"    work();\n".repeat(80)}  }\n}\n`;
  const arrow = `const run = (a: number) => {\n${body(80)}};\n`;
  expect(findLongFunctions("x.ts", method, 70)).toHaveLength(1);
  expect(findLongFunctions("x.ts", arrow, 70)).toHaveLength(1);
});

test("findLongFunctions: a function at the limit passes, however deep its blocks are", () => {
  const text = `function fits() {\n  if (a) {\n${"    work();\n".repeat(66)}  }\n}\n`;
  expect(findLongFunctions("x.ts", text, 70)).toEqual([]);
});
