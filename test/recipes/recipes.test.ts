import { readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readSetup } from "../../scripts/checkout.ts";
import { applyStep, type Recipe, readRecipes } from "./read-recipes.ts";
import { Workshop } from "./workshop.ts";

const contributing = readFileSync(path.resolve(import.meta.dirname, "../../CONTRIBUTING.md"), "utf8");
const recipes = readRecipes(contributing);

describe("Recipes of CONTRIBUTING.md, all in one copy of the repository", () => {
  let workshop: Workshop;
  beforeAll(() => {
    workshop = Workshop.open();
    for (const recipe of recipes) workshop.follow(recipe);
    workshop.run("node", "scripts/generate/main.ts");
    workshop.run("biome", "check", "--write", ...filesOf(recipes, /\.ts$/));
  }, 300_000);
  afterAll(() => {
    workshop[Symbol.dispose]();
  });

  test("recipes: there is one for a field, a kind, a verb, an admission check and a printer column", () => {
    const titles = ["A field", "A printer column", "A kind", "A verb of the helper", "An admission check"];
    expect(recipes.map(({ title }) => title)).toEqual(titles);
    expect(recipes.filter(({ steps }) => steps.length === 0)).toEqual([]);
  });

  test("recipes: what they add passes types and lint", () => {
    workshop.run("tsc", "-p", "tsconfig.json");
    workshop.run("oxlint", "--deny-warnings", ...filesOf(recipes, /\.ts$/));
  }, 300_000);

  test("recipes: the tests that they add pass, and so do the tests beside them", () => {
    const tests = filesOf(recipes, /\.test\.ts$/);
    expect(tests.length).toBeGreaterThan(3);
    workshop.run("vitest", "run", "--project", "unit", ...tests, "test/host/fake-host.test.ts", "test/deploy");
  }, 300_000);

  test("recipes: what they add in Go compiles", () => {
    workshop.runIn("native", readSetup().go, "vet", "./internal/hostapi");
  }, 300_000);
});

function filesOf(all: readonly Recipe[], pattern: RegExp): string[] {
  return [...new Set(all.flatMap(({ steps }) => steps.map(({ file }) => file)))].filter((file) => pattern.test(file));
}

test("readRecipes: steps have a file, a place in it and a text", () => {
  const text =
    "## R\n\n### A thing\n\nWhy.\n\n1. `a.ts`, after `x;`:\n\n   ```ts\n   y;\n   ```\n2. `b.ts`, new:\n\n   ```ts\n   z;\n   ```\n\n## Other\n";
  expect(readRecipes(text)).toEqual([
    {
      title: "A thing",
      steps: [
        { file: "a.ts", anchor: { side: "after", line: "x;" }, text: "y;\n" },
        { file: "b.ts", text: "z;\n" },
      ],
    },
  ]);
});

test("applyStep: text goes beside its one line, and a file that is there is no new one", () => {
  const anchor = { side: "after" as const, line: "x;" };
  expect(applyStep("  x;\nend\n", { file: "a", anchor, text: "y;\n" })).toBe("  x;\ny;\nend\n");
  expect(applyStep("x;\n", { file: "a", anchor: { ...anchor, side: "before" }, text: "y;\n" })).toBe("y;\nx;\n");
  expect(() => applyStep("x;\nx;\n", { file: "a", anchor, text: "y;\n" })).toThrow("a has 2 lines that are x;");
  expect(() => applyStep("old", { file: "a", text: "new" })).toThrow("a is there already");
});
