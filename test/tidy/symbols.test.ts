import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { findMissingSymbols, type Repository } from "./symbols.ts";

const rootDir = path.resolve(import.meta.dirname, "../..");
const read = (file: string): string => readFileSync(path.join(rootDir, file), "utf8");

/** Documents that explain the code; the others speak to users, of what they type and see. */
const explaining = /^(?:ARCHITECTURE|STYLE|CONTRIBUTING)\.md$|^docs\/(?:adr|flows)\/.*\.md$/;
const noSource = /\.(?:md|png|tar|gz|sum|jsonl)$|package-lock\.json$|\/testdata\/|^test\/tidy\/symbols/;

function repository(): Repository {
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"], {
    cwd: rootDir,
    encoding: "utf8",
  });
  const files = listed.split("\n").filter((file) => file !== "");
  const words = new Set<string>();
  for (const file of files.filter((one) => !noSource.test(one))) {
    for (const word of read(file).match(/[A-Za-z_]\w*/g) ?? []) words.add(word);
  }
  return { files, words };
}

test("tidy: every name in backticks in the documents of the code exists", () => {
  const known = repository();
  const documents = known.files.filter((file) => explaining.test(file));
  expect(documents.length).toBeGreaterThan(20);
  // Recipes name what they make; another test follows them.
  const textOf = (file: string): string => read(file).replace(/^## Recipes$[\s\S]*?(?=^## )/m, "");
  expect(documents.flatMap((file) => findMissingSymbols(file, textOf(file), known))).toEqual([]);
});

test("findMissingSymbols: files, folders, patterns, prefixes and words are found, and what is gone is not", () => {
  const known: Repository = {
    files: ["packages/api/src/ownership.ts", "docs/adr/0001-a.md"],
    words: new Set(["planSandbox", "observed", "agent_sandbox_claims", "run"]),
  };
  const missing = (text: string): string[] => findMissingSymbols("a.md", text, known).map(({ symbol }) => symbol);
  expect(missing("`ownership.ts` `api/src` `packages/<any>/src` `docs/adr/*.md` `{run,api}/src`")).toEqual([]);
  expect(missing("`planSandbox(observed)` `agent_sandbox_*` `run`")).toEqual([]);
  expect(missing("`gone.ts` `planPod()` `other_*` `api/test`")).toEqual([
    "gone.ts",
    "planPod()",
    "other_*",
    "api/test",
  ]);
  expect(missing("```\n`notLooked`\n```\n")).toEqual([]);
});
