import { readFileSync } from "node:fs";
import path from "node:path";
import { build, type Metafile } from "esbuild";
import { rootDir } from "../checkout.ts";
import type { ReleaseFile, ReleaseTree } from "./layout.ts";
import { sdkDeclarations } from "./sdk-declarations.ts";

/** Node's own API that the SDK needs and that came last: `process.getBuiltinModule`. */
const nodeFloor = ">=20.16";

const entries = { index: "packages/sdk/src/index.ts", browser: "packages/sdk/src/browser.ts" };

/** Loaded by its path by the first call that needs it, because nothing of it runs in a browser. */
const loadedByPath = { "local-archive": "packages/sdk/src/files/local-archive.ts" };

/** Needed for kubeconfigs whose users run a program or ask a provider; a user with such a kubeconfig installs it. It brings forty packages. */
const optionalPackages = ["@kubernetes/client-node"];

/** Everything of `@agent-sandbox/sdk` as npm unpacks it. */
export async function sdkPackage(version: string): Promise<ReleaseTree> {
  const files = new Map<string, ReleaseFile>();
  const { outputs, imported } = await compileSdk();
  for (const [name, content] of outputs) files.set(`dist/${name}`, { mode: 0o644, content });
  for (const [name, text] of await sdkDeclarations(Object.values(entries))) files.set(name, textFile(text));
  files.set("README.md", { mode: 0o644, content: { file: path.join(rootDir, "packages/sdk/README.md") } });
  files.set("LICENSE", { mode: 0o644, content: { file: path.join(rootDir, "LICENSE") } });
  files.set("package.json", textFile(`${JSON.stringify(sdkManifest(version, imported), undefined, 2)}\n`));
  return files;
}

async function compileSdk(): Promise<{ outputs: ReadonlyMap<string, Buffer>; imported: readonly string[] }> {
  const outdir = path.join(rootDir, "dist/sdk");
  const { outputFiles, metafile } = await build({
    absWorkingDir: rootDir,
    entryPoints: { ...entries, ...loadedByPath },
    outdir,
    entryNames: "[name]",
    chunkNames: "chunk-[hash]",
    bundle: true,
    splitting: true,
    platform: "node",
    format: "esm",
    target: ["node20", "es2022"],
    plugins: [{ name: "packages of others stay imports", setup: leaveForeignPackages }],
    define: { "Promise.withResolvers": "promiseWithResolvers" },
    inject: [path.join(import.meta.dirname, "promise-with-resolvers.ts")],
    legalComments: "none",
    metafile: true,
    write: false,
    logLevel: "warning",
  });
  const outputs = outputFiles.map(
    ({ path: file, contents }) => [path.relative(outdir, file), Buffer.from(contents)] as const,
  );
  return { outputs: new Map(outputs), imported: foreignImports(metafile) };
}

type Setup = NonNullable<NonNullable<Parameters<typeof build>[0]["plugins"]>[number]>["setup"];

const leaveForeignPackages: Setup = (compilation) => {
  compilation.onResolve({ filter: /^[^./]/ }, ({ path: specifier, kind }) =>
    kind === "entry-point" || specifier.startsWith("@agent-sandbox/") || path.isAbsolute(specifier)
      ? undefined
      : { path: specifier, external: true },
  );
};

/** The npm packages that the compiled files import. */
function foreignImports({ outputs }: Metafile): string[] {
  const specifiers = Object.values(outputs).flatMap(({ imports }) =>
    imports.filter(({ external }) => external === true),
  );
  return [...new Set(specifiers.map(({ path: name }) => name))].filter((name) => !name.startsWith("node:")).sort();
}

function sdkManifest(version: string, imported: readonly string[]): object {
  const main = { types: "./types/sdk/index.d.ts", default: "./dist/index.js" };
  const browser = { types: "./types/sdk/browser.d.ts", default: "./dist/browser.js" };
  const ranges = Object.fromEntries(imported.map((name) => [name, `^${installedVersion(name)}`]));
  const isOptional = ([name]: [string, string]): boolean => optionalPackages.includes(name);
  const optional = Object.fromEntries(Object.entries(ranges).filter(isOptional));
  return {
    name: "@agent-sandbox/sdk",
    version,
    description: "Isolated, stateful Linux environments for agents, on one machine or a cluster",
    license: "Apache-2.0",
    type: "module",
    engines: { node: nodeFloor },
    main: main.default,
    types: main.types,
    exports: {
      // A bundler for browsers gets what runs there: commands, terminals and files through a router.
      ".": { browser, ...main },
      "./browser": browser,
      "./package.json": "./package.json",
    },
    sideEffects: false,
    dependencies: Object.fromEntries(Object.entries(ranges).filter((entry) => !isOptional(entry))),
    peerDependencies: optional,
    peerDependenciesMeta: Object.fromEntries(Object.keys(optional).map((name) => [name, { optional: true }])),
  };
}

function installedVersion(name: string): string {
  const text = readFileSync(path.join(rootDir, "node_modules", name, "package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

function textFile(text: string): ReleaseFile {
  return { mode: 0o644, content: Buffer.from(text) };
}
