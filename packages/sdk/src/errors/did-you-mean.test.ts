import { expect, test } from "vitest";
import { closest, didYouMean } from "./did-you-mean.ts";

test("closest: a typo finds the word it was meant to be", () => {
  expect(closest("rnu", ["run", "up", "exec"])).toEqual(["run"]);
  expect(closest("sandboxs", ["sandboxsnapshots", "sandbox", "pods"])).toContain("sandbox");
});

test("didYouMean: says nothing where nothing is close", () => {
  expect(didYouMean("frobnicate", ["run", "up"])).toBe("");
  expect(didYouMean("dve", ["dev"])).toBe("; did you mean 'dev'?");
});
