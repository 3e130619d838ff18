import { expect, test } from "vitest";
import { findCycles } from "./cycles.ts";

type Imports = Readonly<Record<string, readonly string[]>>;

function cyclesOf(imports: Imports): string[] {
  const files = [...new Set([...Object.keys(imports), ...Object.values(imports).flat()])];
  return findCycles(files, (file) => imports[file] ?? []);
}

const tangled: readonly (readonly [string, Imports, string])[] = [
  ["two files", { "src/a.ts": ["src/b.ts"], "src/b.ts": ["src/a.ts"] }, "src: a.ts b.ts"],
  [
    "a ring of three folders, without a ring of files",
    { "src/a/1.ts": ["src/b/1.ts"], "src/b/2.ts": ["src/c/1.ts"], "src/c/2.ts": ["src/a/2.ts"] },
    "src: a b c",
  ],
  [
    "a file and the folder beside it",
    { "src/a.ts": ["src/deep/er/b.ts"], "src/deep/c.ts": ["src/a.ts"] },
    "src: a.ts deep",
  ],
];

test.each(tangled)("findCycles: names %s", (_what, imports, knot) => {
  expect(cyclesOf(imports)).toEqual([knot]);
});

const straight: readonly (readonly [string, Imports])[] = [
  [
    "a folder whose root imports it and whose base it imports",
    { "src/root.ts": ["src/x/a.ts"], "src/x/a.ts": ["src/base.ts"] },
  ],
  ["two ways to the same file", { "a.ts": ["b.ts", "c.ts"], "b.ts": ["d.ts"], "c.ts": ["d.ts"] }],
  [
    "a test that imports what imports its folder",
    { "src/x/a.test.ts": ["src/root.ts"], "src/root.ts": ["src/x/a.ts"] },
  ],
];

test.each(straight)("findCycles: passes %s", (_what, imports) => {
  expect(cyclesOf(imports)).toEqual([]);
});
