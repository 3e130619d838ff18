import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

const rootDir = path.resolve(import.meta.dirname, "../..");

/** Every test of these folders, in one text. Other catalogues use the same letters elsewhere. */
function testsOf(...folders: readonly string[]): string {
  const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", ...folders], {
    cwd: rootDir,
    encoding: "utf8",
  });
  const tests = files.split("\n").filter((file) => /\.test\.ts$|_test\.go$/.test(file) && !file.includes("weaknesses"));
  return tests.map((file) => readFileSync(path.join(rootDir, file), "utf8")).join("\n");
}

const numbers = (letter: string, last: number): string[] =>
  Array.from({ length: last }, (_each, index) => `${letter}${index + 1}`);
const missing = (wanted: readonly string[], text: string): string[] =>
  wanted.filter((number) => !new RegExp(`\\b${number}\\b`).test(text));

test("weaknesses: each one of the router is named by a test that holds it closed", () => {
  expect(missing(numbers("G", 22), testsOf("test/router", "test/deploy", "packages/server/src/router"))).toEqual([]);
});

test("weaknesses: each one of the daemon and its legacy runtime is named by a test that holds it closed", () => {
  const text = testsOf("native/internal", "native/cmd/sandboxd");
  expect(missing([...numbers("R", 18), ...numbers("L", 5)], text)).toEqual([]);
});

test("weaknesses: each one has a decision in the compatibility table", () => {
  const table = readFileSync(path.join(rootDir, "docs/compatibility.md"), "utf8");
  const decided = [...numbers("G", 22), ...numbers("R", 18), ...numbers("L", 5)];
  expect(decided.filter((number) => !table.includes(`| ${number} |`))).toEqual([]);
});
