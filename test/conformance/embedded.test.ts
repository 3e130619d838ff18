import { expect, test } from "vitest";
import { openEmbeddedTarget } from "./embedded-target.ts";
import { groups } from "./groups.ts";
import { knownDifferences } from "./known-differences.ts";
import { registerConformance } from "./register.ts";

const failing = new Set(knownDifferences.flatMap(({ titles }) => titles));
const name = "conformance of the embedded server";
registerConformance({ name, open: openEmbeddedTarget, ownKinds: "present", failing });

test("conformance: every known difference names a case", () => {
  const titles = new Set(groups.flatMap((group) => group.cases.map((each) => `${group.name}: ${each.title}`)));
  expect([...failing].filter((title) => !titles.has(title))).toEqual([]);
  expect(titles.size).toBeGreaterThan(600);
});
