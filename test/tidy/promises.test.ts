import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { hasTest, namedTests, promiseRows } from "./promises.ts";

const rootDir = path.resolve(import.meta.dirname, "../..");
const read = (file: string): string => readFileSync(path.join(rootDir, file), "utf8");

test("promises: every promise of SECURITY.md names a test that exists", () => {
  const text = read("SECURITY.md");
  const named = namedTests(text);
  expect(promiseRows(text).length).toBeGreaterThan(20);
  expect(named).toHaveLength(promiseRows(text).length);
  const missing = named.filter((one) => !existsSync(path.join(rootDir, one.file)) || !hasTest(read(one.file), one));
  expect(missing).toEqual([]);
});

test("promises: every invariant of ARCHITECTURE.md has a test that carries its name", () => {
  const [, section = ""] = read("ARCHITECTURE.md").split("\n## Invariants\n");
  const [table = ""] = section.split("\n## ");
  const names = [...table.matchAll(/^\| ([a-z-]+) \|/gm)]
    .map(([, name = ""]) => name)
    .filter((name) => name !== "name");
  const named = namedTests(table);
  expect(names.length).toBeGreaterThan(20);
  expect(named).toHaveLength(names.length);
  const camel = (name: string): string => name.replace(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());
  const wrong = named.filter(({ file, title }, row) => {
    const wanted = file.endsWith(".go") ? `TestInvariant${camel(names[row] ?? "")}` : `invariant ${names[row]}: `;
    return !title.startsWith(wanted) || !existsSync(path.join(rootDir, file)) || !hasTest(read(file), { file, title });
  });
  expect(wrong).toEqual([]);
});

test("promises: every page that SECURITY.md links to exists", () => {
  const links = [...read("SECURITY.md").matchAll(/\]\(([^)#:]+)\)/g)].map(([, link = ""]) => link);
  expect(links.length).toBeGreaterThan(2);
  expect(links.filter((link) => !existsSync(path.join(rootDir, link)))).toEqual([]);
});

test("promises: a row without a test, a test of another name and a test of another file are noticed", () => {
  const text = "| promise | held by |\n|---|---|\n| a | `x.test.ts`: subject: does it |\n| b | nothing |\n";
  expect(promiseRows(text)).toHaveLength(2);
  expect(namedTests(text)).toEqual([{ file: "x.test.ts", title: "subject: does it" }]);
  expect(hasTest('test("subject: does it", () => {})', { file: "x.test.ts", title: "subject: does it" })).toBe(true);
  expect(hasTest('test("subject: does it not", () => {})', { file: "x.test.ts", title: "subject: does it" })).toBe(
    false,
  );
  expect(hasTest("func TestIt(t *testing.T) {", { file: "x_test.go", title: "TestIt" })).toBe(true);
  expect(hasTest("func TestItToo(t *testing.T) {", { file: "x_test.go", title: "TestIt" })).toBe(false);
});
