import { expect, test } from "vitest";
import { findManyParameters } from "./parameters.ts";

test("findManyParameters: counts those of functions and methods, the signal and commas inside aside", () => {
  const many = "export async function plan(a: A, b: Map<B, C>, { c, d }: D, e: (f: F, g: G) => H, i: I): J {\n}\n";
  expect(findManyParameters("x.ts", many, 4)).toEqual(["x.ts: plan has 5 parameters"]);
  expect(findManyParameters("x.ts", many, 5)).toEqual([]);
  const method = "  async #serve(a: A, b: B, c: C, d: D, signal: AbortSignal): Promise<void> {\n  }\n";
  expect(findManyParameters("x.ts", method, 4)).toEqual([]);
  expect(findManyParameters("x.ts", method, 3)).toEqual(["x.ts: #serve has 4 parameters"]);
  expect(findManyParameters("x.ts", "  if (a(b, c, d, e, f)) {\n  }\n", 3)).toEqual([]);
});
