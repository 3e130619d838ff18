import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { findUnusedExports } from "./exports.ts";

const rootDir = path.resolve(import.meta.dirname, "../..");

test("tidy: no export is unused, or used by tests alone without saying so", () => {
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"], {
    cwd: rootDir,
    encoding: "utf8",
  });
  const files = listed.split("\n").filter((file) => /\.(?:ts|tsx|mjs)$/.test(file));
  const texts = new Map(files.map((file) => [file, readFileSync(path.join(rootDir, file), "utf8")]));
  expect(findUnusedExports(texts)).toEqual([]);
});

test("findUnusedExports: imports by name, by package, by index, by star and at run time count", () => {
  const texts = new Map([
    ["packages/api/src/index.ts", 'export * from "./kind.ts";\n'],
    ["packages/api/src/kind.ts", "export const a = 1;\nexport const b = 2;\nexport type C = 1;\nexport class D {}\n"],
    ["packages/kube/src/x.ts", 'import { type C, a as other } from "@agent-sandbox/api";\n'],
    ["packages/kube/src/y.ts", 'import * as kind from "@agent-sandbox/api/kind";\n'],
    ["packages/cli/src/main.ts", '  const { late } = await import("./late.ts");\n'],
    ["packages/cli/src/late.ts", "export function late() {}\nexport function never() {}\n"],
  ]);
  expect(findUnusedExports(texts)).toEqual([{ file: "packages/cli/src/late.ts", name: "never", usedBy: "none" }]);
  texts.delete("packages/kube/src/y.ts");
  expect(findUnusedExports(texts).map(({ name }) => name)).toEqual(["b", "D", "never"]);
});

test("findUnusedExports: what tests alone import must say so, and a type in a signature may stay", () => {
  const source = (comment: string): string =>
    `${comment}export function plan(o: Options) {}\nexport interface Options {}\n`;
  const found = (comment: string) =>
    findUnusedExports(
      new Map([
        ["packages/kube/src/plan.ts", source(comment)],
        ["packages/kube/src/plan.test.ts", 'import { plan } from "./plan.ts";\n'],
      ]),
    );
  expect(found("")).toEqual([{ file: "packages/kube/src/plan.ts", name: "plan", usedBy: "tests" }]);
  expect(found("/** Decides. Exported for tests. */\n")).toEqual([]);
});
