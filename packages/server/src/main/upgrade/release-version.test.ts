import { expect, test } from "vitest";
import { compareVersions, isOneBack, isVersion } from "./release-version.ts";

test("release version: versions are ordered as semantic versioning says", () => {
  const ordered = [
    "0.1.0-alpha",
    "0.1.0-alpha.1",
    "0.1.0-alpha.beta",
    "0.1.0-rc.2",
    "0.1.0-rc.10",
    "0.1.0",
    "0.1.1",
    "0.2.0",
    "1.0.0",
  ];
  for (const [a, left] of ordered.entries())
    for (const [b, right] of ordered.entries())
      expect([left, right, Math.sign(compareVersions(left, right))]).toEqual([left, right, Math.sign(a - b)]);
  expect(compareVersions("0.1.0+one", "0.1.0+two")).toBe(0);
});

test.for([
  ["0.1.2", "0.1.1", undefined, true],
  ["0.1.2-test", "0.1.1-test", undefined, true],
  ["0.1.2", "0.1.2-rc.1", undefined, true],
  ["0.1.3", "0.1.1", undefined, false],
  ["0.1.3", "0.1.1", "0.1.1", true],
  ["0.2.0", "0.1.9", undefined, true],
  ["0.2.1", "0.1.9", undefined, false],
  ["0.3.0", "0.1.0", undefined, false],
  ["1.0.0", "0.9.0", undefined, false],
  ["0.1.1", "0.1.2", undefined, false],
  ["0.1.1", "0.1.1", "0.1.1", false],
] as const)("release version: from %s to %s with %s before: one back is %s", ([from, to, before, isBack]) => {
  expect(isOneBack({ from, to, before })).toBe(isBack);
});

test("release version: what is no version is told from one", () => {
  expect(["0.1.0", "0.1.0-dev+abc", "0.1", "v0.1.0", "../0.1.0", ""].map(isVersion)).toEqual([
    true,
    true,
    false,
    false,
    false,
    false,
  ]);
});
