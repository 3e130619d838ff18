// Builds a release into dist/: npm run release -- [--only PART]... [--arch ARCH]... [--out DIR] [--version VERSION]
import { mkdirSync, rmSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { rootDir, secondsSince } from "../checkout.ts";
import { writeChecksums } from "./checksums.ts";
import { type Compiled, compileApp } from "./compile.ts";
import { writeDeb } from "./deb.ts";
import { buildGoModule } from "./go-module.ts";
import { type Architecture, architectures, releaseName, releaseVersion } from "./layout.ts";
import { writeManifests } from "./manifests.ts";
import { buildNpm } from "./npm.ts";
import { writeProvenance } from "./provenance.ts";
import { buildPython } from "./python.ts";
import { writeSbom } from "./sbom.ts";
import { readSource, type Source } from "./source.ts";
import { writeTarball } from "./tarball.ts";
import { type ReleaseInput, releaseTree } from "./tree.ts";

/** What every part of a release is given. */
export interface Build {
  readonly version: string;
  readonly source: Source;
  readonly compiled: Compiled;
  readonly architectures: readonly Architecture[];
  /** The parts that are built this time. */
  readonly parts: readonly string[];
  readonly outDir: string;
}

/** The parts in the order they are built in: what describes the others comes last. */
const parts: Readonly<Record<string, (build: Build) => unknown>> = {
  tarball: buildTarballs,
  deb: buildDebs,
  npm: buildNpm,
  python: buildPython,
  go: buildGoModule,
  manifests: ({ outDir }) => writeManifests(outDir),
  sbom: buildSboms,
  provenance: (build) => writeProvenance(build.outDir, build),
};

async function buildTarballs(build: Build): Promise<void> {
  for (const input of inputsOf(build)) {
    const name = releaseName(input.version, input.arch);
    const options = { prefix: `${name}/`, epoch: build.source.epoch };
    await writeTarball(path.join(build.outDir, `${name}.tar.gz`), releaseTree(input), options);
  }
}

async function buildDebs(build: Build): Promise<void> {
  for (const input of inputsOf(build)) await writeDeb(build.outDir, input, build.source.epoch);
}

function buildSboms(build: Build): void {
  for (const input of inputsOf(build)) writeSbom(build.outDir, input, build.source.epoch);
}

/** What a part that exists for each architecture is made of. */
function inputsOf({ version, source: { commit }, compiled, architectures: wanted }: Build): ReleaseInput[] {
  return wanted.map((arch) => ({ version, arch, commit, compiled }));
}

function partsOf(only: readonly string[] | undefined): string[] {
  const unknown = only?.find((name) => parts[name] === undefined);
  if (unknown !== undefined) throw new Error(`no part '${unknown}'; there are ${Object.keys(parts).join(", ")}`);
  return Object.keys(parts).filter((name) => only === undefined || only.includes(name));
}

function architecturesOf(wanted: readonly string[] | undefined): readonly Architecture[] {
  const unknown = wanted?.find((name) => !architectures.some((arch) => arch === name));
  if (unknown !== undefined) throw new Error(`no architecture '${unknown}'; there are ${architectures.join(", ")}`);
  return architectures.filter((arch) => wanted === undefined || wanted.includes(arch));
}

/** Where a release is built when nothing else is said; git does not see it. */
const distDir = path.join(rootDir, "dist");

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      only: { type: "string", multiple: true },
      arch: { type: "string", multiple: true },
      out: { type: "string", default: distDir },
      version: { type: "string", default: releaseVersion() },
    },
  });
  const names = partsOf(values.only);
  // A whole release describes everything in its folder, so that nothing of an earlier one may lie there.
  if (values.only === undefined && values.out === distDir) rmSync(distDir, { recursive: true, force: true });
  mkdirSync(values.out, { recursive: true });
  const build: Build = {
    version: values.version,
    source: readSource(),
    compiled: await compileApp(),
    architectures: architecturesOf(values.arch),
    parts: names,
    outDir: path.resolve(values.out),
  };
  for (const name of names) {
    const startMs = Date.now();
    await parts[name]?.(build);
    process.stdout.write(`${name}: ${secondsSince(startMs)}\n`);
  }
  writeChecksums(build.outDir);
}

await main();
