import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Output, readIfPresent } from "./output.ts";

test("Output: a check changes nothing and names what is out of date", () => {
  const root = mkdtempSync(join(tmpdir(), "output-"));
  try {
    const writer = new Output({ root, check: false });
    writer.write("a/b.txt", "one");
    expect(readFileSync(join(root, "a/b.txt"), "utf8")).toBe("one");
    const checker = new Output({ root, check: true });
    checker.write("a/b.txt", "one");
    expect(checker.stale).toEqual([]);
    checker.write("a/b.txt", "two");
    checker.remove("a/b.txt");
    expect(checker.stale).toEqual(["a/b.txt", "a/b.txt"]);
    expect(readIfPresent(join(root, "a/b.txt"))).toBe("one");
  } finally {
    rmSync(root, { recursive: true });
  }
});
