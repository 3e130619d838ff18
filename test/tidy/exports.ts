import path from "node:path";

/** A product file's export that no other product file imports. */
export interface UnusedExport {
  readonly file: string;
  readonly name: string;
  /** Who does import it: tests alone, or no file at all. */
  readonly usedBy: "tests" | "none";
}

/** The sentences that let an export stay which no file of the product imports by name; they stand in the export's own comment. */
const marks = { tests: "Exported for tests.", none: "Loaded by path." } as const;

const declaration =
  /^export (?:declare )?(?:abstract )?(?:async )?(?:function\*?|class|const|let|type|interface|enum) (\w+)/gm;
const clause = /^(?:import|export) (?:type )?(?:\w+, )?\{([^}]*)\} from "([^"]+)"/gm;
const everything = /^(?:import (?:type )?(?:\* as )?\w+|export \* as \w+) from "([^"]+)"/gm;
const starExport = /^export \* from "([^"]+)"/gm;
const dynamicImport = /(?:\{([^{}]*)\} = \(?await )?import\(\s*"([^"]+)"\s*\)/g;

/** Finds what is exported in vain. `texts` has every TypeScript file of the repository by its path. */
export function findUnusedExports(texts: ReadonlyMap<string, string>): UnusedExport[] {
  const product = usesOf(texts, (file) => !isTestCode(file));
  const tests = usesOf(texts, isTestCode);
  return [...texts]
    .filter(([file]) => isProduct(file))
    .flatMap(([file, text]) =>
      [...text.matchAll(declaration)]
        .map(([, name = ""]) => name)
        .filter((name) => !product.has(`${file}#${name}`) && !product.has(`${file}#*`))
        .filter((name) => !isNamedBySignature(text, name))
        .map((name): UnusedExport => ({ file, name, usedBy: tests.has(`${file}#${name}`) ? "tests" : "none" }))
        .filter(({ name, usedBy }) => !isMarked(text, name, marks[usedBy])),
    );
}

function isProduct(file: string): boolean {
  return /^packages\/[^/]+\/src\//.test(file) && !isTestCode(file) && !isGenerated(file);
}

function isTestCode(file: string): boolean {
  return /\.test\.ts$|\/testing\/|^test\//.test(file);
}

function isGenerated(file: string): boolean {
  return /\.gen\.ts$|_pb\.ts$/.test(file);
}

/** Every `file#name` that the chosen files import; a package's index passes a name on to the file that declares it. */
function usesOf(texts: ReadonlyMap<string, string>, isChosen: (file: string) => boolean): Set<string> {
  const uses = new Set<string>();
  for (const [file, text] of texts) {
    if (!isChosen(file)) continue;
    for (const [from, names] of importsOf(text)) {
      const target = resolve(file, from);
      if (target !== undefined && target !== file) for (const name of names) note(target, name);
    }
  }
  // What a published package's entries export is used by people whose code is elsewhere.
  for (const entry of ["packages/sdk/src/index.ts", "packages/sdk/src/browser.ts"])
    if (isChosen(entry)) note(entry, "*");
  return uses;

  function note(file: string, name: string): void {
    const use = `${file}#${name}`;
    if (uses.has(use)) return;
    uses.add(use);
    for (const [, from = ""] of (texts.get(file) ?? "").matchAll(starExport)) {
      const target = resolve(file, from);
      if (target !== undefined) note(target, name);
    }
  }
}

function importsOf(text: string): [string, string[]][] {
  return [
    ...[...text.matchAll(clause)].map(([, names = "", from = ""]): [string, string[]] => [from, namesOf(names)]),
    ...[...text.matchAll(everything)].map(([, from = ""]): [string, string[]] => [from, ["*"]]),
    ...[...text.matchAll(dynamicImport)].map(([, names = "*", from = ""]): [string, string[]] => [
      from,
      namesOf(names),
    ]),
  ];
}

/** The names of an import's braces as their file exports them: `a as b` is `a`, and so is `a: b`. */
function namesOf(braces: string): string[] {
  return braces
    .split(",")
    .map((part) =>
      part
        .trim()
        .replace(/^type /, "")
        .replace(/(?: as |:).*/s, "")
        .trim(),
    )
    .filter((name) => name !== "");
}

/** A type that the file's other exports name belongs to their signature, so that a caller can write it down. */
function isNamedBySignature(text: string, name: string): boolean {
  const isType = new RegExp(`^export (?:type|interface) ${name}\\b`, "m").test(text);
  return isType && (text.match(new RegExp(`\\b${name}\\b`, "g"))?.length ?? 0) > 1;
}

function isMarked(text: string, name: string, mark: string): boolean {
  const at = text.search(new RegExp(`^export [\\w* ]*\\b${name}\\b`, "m"));
  const comment = /\/\*\*(?:(?!\*\/)[\s\S])*\*\/\s*$/.exec(text.slice(0, at))?.[0] ?? "";
  return comment.includes(mark);
}

function resolve(file: string, specifier: string): string | undefined {
  if (specifier.startsWith(".")) return path.posix.join(path.posix.dirname(file), specifier);
  const own = /^@agent-sandbox\/([^/]+)(?:\/(.*?)(?:\.ts)?)?$/.exec(specifier);
  return own === null ? undefined : `packages/${own[1]}/src/${own[2] ?? "index"}.ts`;
}
