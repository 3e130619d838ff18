import { readFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";
import { entryModules, specFiles } from "../../packages/server/src/installation/installation.ts";
import { rootDir } from "../checkout.ts";
import { layout, type ReleaseFile, type ReleaseTree } from "./layout.ts";
import { namedImports } from "./named-imports.ts";

/** An npm package whose code is in the compiled files. */
export interface BundledPackage {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** Its folder, relative to the checkout. */
  readonly folder: string;
}

/** The compiled command and server. */
export interface Compiled {
  readonly files: ReleaseTree;
  readonly packages: readonly BundledPackage[];
}

// Packages written for CommonJS ask for Node's own modules by `require`, which modules of ECMAScript do not have.
const banner =
  'import{createRequire as createRequireOfModule}from"node:module";const require=createRequireOfModule(import.meta.url);';

/**
 * Compiles every module that is started by its path, with what they share in files of its own. The folder is flat, so that
 * `import.meta.dirname` is the same in all of them and `installation.ts` finds the release's root from any.
 */
export async function compileApp(): Promise<Compiled> {
  const outdir = path.join(rootDir, "dist/app");
  const { outputFiles, metafile } = await build({
    absWorkingDir: rootDir,
    entryPoints: { ...entryModules },
    outdir,
    entryNames: "[name]",
    chunkNames: "chunk-[hash]",
    bundle: true,
    splitting: true,
    platform: "node",
    format: "esm",
    target: "node24",
    banner: { js: banner },
    plugins: [namedImports],
    // Names stay, because errors and metrics are called by those of their classes; white space goes, because it is a third of what is loaded.
    minifyWhitespace: true,
    minifySyntax: true,
    keepNames: true,
    legalComments: "none",
    metafile: true,
    write: false,
    logLevel: "warning",
  });
  const files = new Map<string, ReleaseFile>();
  for (const { path: file, contents } of outputFiles)
    files.set(`${layout.app}/${path.relative(outdir, file)}`, { mode: 0o644, content: Buffer.from(contents) });
  files.set(`${layout.app}/package.json`, { mode: 0o644, content: Buffer.from('{"type":"module"}\n') });
  for (const name of specFiles)
    files.set(`${layout.spec}/${name}`, { mode: 0o644, content: { file: path.join(rootDir, "spec", name) } });
  return { files, packages: packagesOf(Object.keys(metafile.inputs)) };
}

/** The npm packages that the compiler read files of. */
function packagesOf(inputs: readonly string[]): BundledPackage[] {
  const folders = new Set<string>();
  for (const input of inputs) {
    const folder = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1];
    if (folder !== undefined) folders.add(folder);
  }
  return [...folders].sort().map((folder) => {
    const manifest = JSON.parse(readFileSync(path.join(rootDir, folder, "package.json"), "utf8")) as BundledPackage;
    return { name: manifest.name, version: manifest.version, license: manifest.license, folder };
  });
}
