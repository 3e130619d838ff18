import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { findForbiddenArrows, findUnusedArrows } from "./tidy/arrows.ts";
import { findCasts } from "./tidy/casts.ts";
import { findFigures, findFiguresInText } from "./tidy/comments.ts";
import { findCycles } from "./tidy/cycles.ts";
import { findLongFunctions } from "./tidy/functions.ts";
import { findCopiedRules } from "./tidy/homes.ts";
import { importsIn, isTestCode } from "./tidy/imports.ts";
import { findManyParameters } from "./tidy/parameters.ts";

const rootDir = path.resolve(import.meta.dirname, "..");

/** The ratchet of STYLE.md: no new file above it. */
const fileLinesMax = 600;
const functionLinesMax = 70;
const parametersMax = 4;
const bannedNames = /^(utils?|helpers?|common|misc|managers?|data)(\..*)?$/;

const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"], {
  cwd: rootDir,
  encoding: "utf8",
})
  .split("\n")
  .filter((file) => file !== "" && !file.includes("node_modules/"));
const isGenerated = (file: string): boolean =>
  /\.gen\.|_pb2|\.pb\.go$|\.connect\.go$|\/_?gen\/|\/proto\/.*_pb\.(ts|js)$/.test(file);
const sources = files.filter((file) => /\.(ts|tsx|mjs|go|py)$/.test(file) && !isGenerated(file));
const documents = files.filter((file) =>
  /^(?:ARCHITECTURE|SECURITY|STYLE|CONTRIBUTING)\.md$|(?:^|\/)README\.md$|^docs\/.*\.md$/.test(file),
);
const typescript = sources.filter((file) => /\.(ts|tsx)$/.test(file));
const textOf = new Map<string, string>();
const read = (file: string): string => {
  const known = textOf.get(file) ?? readFileSync(path.join(rootDir, file), "utf8");
  textOf.set(file, known);
  return known;
};

test("tidy: every import follows the arrows of ARCHITECTURE.md", () => {
  expect(typescript.flatMap((file) => findForbiddenArrows(file, read(file)))).toEqual([]);
});

test("tidy: every arrow between layers of the API server is needed", () => {
  expect(findUnusedArrows(typescript, read)).toEqual([]);
});

test("tidy: the parts of every folder import each other in one direction", () => {
  const cycles = findCycles(typescript, (file) => importsIn(file, read(file)));
  expect(cycles).toEqual([]);
});

test("tidy: a cast through unknown has its place in a table and its reason beside it", () => {
  expect(typescript.flatMap((file) => findCasts(file, read(file)))).toEqual([]);
});

test("tidy: a rule of packages/api is written nowhere else", () => {
  const product = typescript.filter((file) => file.startsWith("packages/") && !isTestCode(file));
  expect(product.flatMap((file) => findCopiedRules(file, read(file)))).toEqual([]);
});

test("tidy: comments name the mechanism and use no figure of speech", () => {
  expect(sources.flatMap((file) => findFigures(file, read(file)))).toEqual([]);
});

test("tidy: documents name the mechanism and use no figure of speech", () => {
  expect(documents).toContain("docs/operation.md");
  expect(documents.flatMap((file) => findFiguresInText(file, read(file)))).toEqual([]);
});

test("tidy: no source file is longer than the ratchet", () => {
  const long = sources
    .map((file) => ({ file, lines: read(file).split("\n").length - 1 }))
    .filter(({ lines }) => lines > fileLinesMax);
  expect(long).toEqual([]);
});

test("tidy: no TypeScript function is longer than the ratchet", () => {
  expect(typescript.flatMap((file) => findLongFunctions(file, read(file), functionLinesMax))).toEqual([]);
});

test("tidy: no TypeScript function has more parameters than STYLE.md allows", () => {
  const product = typescript.filter((file) => /^(?:packages|scripts)\//.test(file) && !file.endsWith(".test.ts"));
  expect(product.flatMap((file) => findManyParameters(file, read(file), parametersMax))).toEqual([]);
});

test("tidy: no file or folder has a name that says nothing", () => {
  expect(files.filter((file) => file.split("/").some((part) => bannedNames.test(part)))).toEqual([]);
});

test("tidy: only a package's index.ts re-exports everything", () => {
  const barrels = typescript.filter(
    (file) => /^export \* from/m.test(read(file)) && !/^packages\/[^/]+\/src\/index\.ts$/.test(file),
  );
  expect(barrels).toEqual([]);
});

test("tidy: every Markdown file has one title", () => {
  const titles = (file: string): number => withoutFences(read(file)).match(/^# /gm)?.length ?? 0;
  expect(files.filter((file) => file.endsWith(".md") && titles(file) !== 1)).toEqual([]);
});

test("tidy: test titles are unique", () => {
  const seen = new Map<string, string>();
  const doubled = typescript
    .filter((file) => file.endsWith(".test.ts"))
    .flatMap((file) => titlesOf(read(file)).map((title) => ({ file, title })))
    .filter(({ file, title }) => {
      const first = seen.get(title);
      seen.set(title, first ?? file);
      return first !== undefined;
    });
  expect(doubled).toEqual([]);
});

function withoutFences(text: string): string {
  return text.replace(/^(```|~~~)[\s\S]*?^\1/gm, "");
}

function titlesOf(text: string): string[] {
  return [...text.matchAll(/^\s*(?:test|it)\(\s*"((?:[^"\\]|\\.)*)"/gm)].map((match) => match[1] ?? "");
}
