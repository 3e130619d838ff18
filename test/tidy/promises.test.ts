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
