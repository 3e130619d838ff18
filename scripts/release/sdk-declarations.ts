import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { rootDir } from "../checkout.ts";
import { inStaging } from "./staging.ts";

const packagesDir = path.join(rootDir, "packages");

// What Node 20 and the browsers of its time have. A call of anything later fails to compile here instead of at a user's; what the
// build replaces (see sdk-package.ts) is declared besides.
const floorLibraries = ["es2023", "esnext.disposable", "dom", "dom.iterable", "dom.asynciterable"];
const replacedApis =
  "interface PromiseConstructor { withResolvers<T>(): { promise: Promise<T>; resolve: (value: T | PromiseLike<T>) => void; reject: (reason?: unknown) => void } }\n";

/**
 * The declarations that some entries of the SDK reach, by their path in the package: `types/<package>/<module>.d.ts`. What they import of
 * our other packages is there too, because those are not published.
 */
export async function sdkDeclarations(entries: readonly string[]): Promise<ReadonlyMap<string, string>> {
  return inStaging((dir) => {
    compileDeclarations(entries, dir);
    const found = new Map<string, string>();
    const waiting = entries.map((entry) => declarationOf(path.relative(packagesDir, path.join(rootDir, entry))));
    for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
      if (found.has(file)) continue;
      const { text, imports } = relinked(readFileSync(path.join(dir, "types", file), "utf8"), file);
      found.set(file, text);
      waiting.push(...imports);
    }
    return new Map([...found].map(([file, text]) => [path.join("types", withoutSrc(file)), text]));
  });
}

function compileDeclarations(entries: readonly string[], dir: string): void {
  const ambient = path.join(dir, "replaced.d.ts");
  writeFileSync(ambient, replacedApis);
  const compilerOptions = {
    lib: floorLibraries,
    noEmit: false,
    declaration: true,
    emitDeclarationOnly: true,
    incremental: false,
    tsBuildInfoFile: null,
    rootDir: packagesDir,
    outDir: path.join(dir, "types"),
    typeRoots: [path.join(rootDir, "node_modules/@types")],
  };
  const files = [ambient, ...entries.map((entry) => path.join(rootDir, entry))];
  // The compiler writes no declaration of what it reached through node_modules, where our packages are links.
  const include = ["api", "kube"].map((name) => path.join(packagesDir, name, "src/**/*.ts"));
  const exclude = [path.join(packagesDir, "**/*.test.ts"), path.join(packagesDir, "*/src/testing/**")];
  const project = path.join(dir, "tsconfig.json");
  const settings = { extends: path.join(rootDir, "tsconfig.json"), compilerOptions, files, include, exclude };
  writeFileSync(project, JSON.stringify(settings));
  const tsc = path.join(rootDir, "node_modules/.bin/tsc");
  execFileSync(tsc, ["-p", project], { stdio: ["ignore", "inherit", "inherit"] });
}

/** A declaration whose imports name files of the package, and these files as the compiler wrote them. */
function relinked(text: string, file: string): { readonly text: string; readonly imports: readonly string[] } {
  const imports: string[] = [];
  const here = path.dirname(withoutSrc(file));
  const replaced = text.replace(/(from |import\()"([^"]+)"/g, (whole, before: string, specifier: string) => {
    const target = targetOf(specifier, file);
    if (target === undefined) return whole;
    imports.push(target);
    const relative = path.relative(here, withoutSrc(target)).replace(/\.d\.ts$/, ".js");
    return `${before}"${relative.startsWith(".") ? relative : `./${relative}`}"`;
  });
  return { text: replaced, imports };
}

/** The declaration that a specifier means, or undefined where it is none of ours. */
function targetOf(specifier: string, file: string): string | undefined {
  if (specifier.startsWith(".")) return declarationOf(path.join(path.dirname(file), specifier));
  const own = /^@agent-sandbox\/([^/]+)(?:\/(.+))?$/.exec(specifier);
  return own === null ? undefined : declarationOf(`${own[1] ?? ""}/src/${own[2] ?? "index"}.ts`);
}

function declarationOf(source: string): string {
  return source.replace(/\.ts$/, ".d.ts");
}

function withoutSrc(file: string): string {
  return file.replace(/^([^/]+)\/src\//, "$1/");
}
