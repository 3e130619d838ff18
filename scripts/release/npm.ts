import { mkdirSync } from "node:fs";
import path from "node:path";
import { rootDir } from "../checkout.ts";
import type { Compiled } from "./compile.ts";
import { type Architecture, architectures, type ReleaseFile, type ReleaseTree } from "./layout.ts";
import { sdkPackage } from "./sdk-package.ts";
import type { Source } from "./source.ts";
import type { PackageOptions } from "./staging.ts";
import { writeTarball } from "./tarball.ts";
import { releaseTree } from "./tree.ts";

/** What the npm packages are made of. */
export interface NpmOptions extends PackageOptions {
  readonly source: Source;
  readonly compiled: Compiled;
  readonly architectures: readonly Architecture[];
}

/** Writes every npm package as a file that a registry takes; returns the names of the files. */
export async function buildNpm(options: NpmOptions): Promise<readonly string[]> {
  const { version, source, compiled, outDir } = options;
  mkdirSync(outDir, { recursive: true });
  const files: string[] = [];
  const write = async (name: string, tree: ReleaseTree): Promise<void> => {
    files.push(`agent-sandbox-${name}-${version}.tgz`);
    const file = path.join(outDir, `agent-sandbox-${name}-${version}.tgz`);
    await writeTarball(file, tree, { prefix: "package/", epoch: source.epoch });
  };
  await write("sdk", await sdkPackage(version));
  await write("cli", cliPackage(version));
  for (const arch of options.architectures) {
    const programs = releaseTree({ version, arch, commit: source.commit, compiled });
    await write(`cli-linux-${arch}`, new Map([...programs, ["package.json", json(carrierManifest(version, arch))]]));
  }
  return files;
}

/** The command without programs: these are in packages of their own, of which npm installs the one that fits. */
function cliPackage(version: string): ReleaseTree {
  const carriers = architectures.map((arch) => [carrierName(arch), version]);
  return new Map<string, ReleaseFile>([
    [
      "package.json",
      json({
        ...commonManifest(version),
        name: "@agent-sandbox/cli",
        description: "Isolated, stateful Linux environments for agents: the command and the engine",
        bin: { "agent-sandbox": "bin/agent-sandbox.mjs" },
        optionalDependencies: Object.fromEntries(carriers),
      }),
    ],
    ["bin/agent-sandbox.mjs", { ...copied("scripts/release/npm-launcher.mjs"), mode: 0o755 }],
    ["README.md", copied("packages/cli/README.md")],
    ["LICENSE", copied("LICENSE")],
  ]);
}

function carrierManifest(version: string, arch: Architecture): object {
  return {
    ...commonManifest(version),
    name: carrierName(arch),
    description: `The programs of @agent-sandbox/cli for Linux on ${arch}`,
    os: ["linux"],
    cpu: [arch],
    libc: ["glibc"],
    // Programs are started from files, so a package manager that keeps packages in archives has to unpack this one.
    preferUnplugged: true,
  };
}

function carrierName(arch: Architecture): string {
  return `@agent-sandbox/cli-linux-${arch}`;
}

function commonManifest(version: string): object {
  return { version, license: "Apache-2.0", type: "module", engines: { node: ">=20" } };
}

function copied(file: string): ReleaseFile {
  return { mode: 0o644, content: { file: path.join(rootDir, file) } };
}

function json(value: object): ReleaseFile {
  return { mode: 0o644, content: Buffer.from(`${JSON.stringify(value, undefined, 2)}\n`) };
}
