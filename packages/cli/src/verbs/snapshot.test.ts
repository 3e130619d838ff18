import { expect, test } from "vitest";
import { countOf, printForks } from "./snapshot.ts";

test("fork: prints names in order, reports each that failed, and ends with the code of the first", () => {
  const lines: string[] = [];
  const print = (name: string): void => void lines.push(name);
  const report = ({ message }: Error): number => lines.push(message);
  const forks = [{ name: "a-1" }, new Error("too late"), { name: "a-3" }, new Error("gone")];
  expect(printForks(forks, print, report)).toBe(2);
  expect(lines).toEqual(["a-1", "too late", "a-3", "gone"]);
  expect(printForks([{ name: "a-1" }], print, report)).toBe(0);
});

test("fork: --count is a whole number from 1 on", () => {
  expect(countOf("16")).toBe(16);
  for (const text of ["0", "-1", "1.5", "", "many", "1e3", "10000"]) {
    expect(() => countOf(text), text).toThrow("--count");
  }
});
