import path from "node:path";

/** The files of this repository that a file imports. */
export type ImportsOf = (file: string) => readonly string[];

/** Tests, and what only tests use, may import anything. */
export function isTestCode(file: string): boolean {
  return file.endsWith(".test.ts") || file.includes("/testing/");
}

/** The files of this repository that a file imports, types and dynamic imports included. */
export function importsIn(file: string, text: string): string[] {
  return specifiersOf(text)
    .map((specifier) => resolve(file, specifier))
    .filter((target) => target !== undefined);
}

function specifiersOf(text: string): string[] {
  return [
    ...text.matchAll(
      /(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s*"([^"]+)"|import\(\s*"([^"]+)"\s*\)|(?:^|\n)import\s+"([^"]+)"/g,
    ),
  ].map((match) => match[1] ?? match[2] ?? match[3] ?? "");
}

function resolve(file: string, specifier: string): string | undefined {
  if (specifier.startsWith(".")) return path.posix.join(path.posix.dirname(file), specifier);
  const own = /^@agent-sandbox\/([^/]+)(?:\/(.*))?$/.exec(specifier);
  if (own === null) return undefined;
  const [, name, inner = "index.ts"] = own;
  return `packages/${name}/src/${inner.endsWith(".ts") ? inner : `${inner}.ts`}`;
}
