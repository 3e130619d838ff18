import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { readSetup, rootDir } from "../checkout.ts";
import { digestsIn } from "./checksums.ts";
import type { Architecture } from "./layout.ts";
import { readParts, sha256Of } from "./natives.ts";
import { carriedDebs } from "./sbom.ts";
import type { Source } from "./source.ts";

/** What a release was built with. */
export interface ProvenanceInput {
  readonly version: string;
  readonly source: Source;
  readonly architectures: readonly Architecture[];
  readonly parts: readonly string[];
}

/** How the file's name ends; the file describes all others and so is none of its own subjects. */
const ending = ".provenance.json";

/** The lists that pin everything from elsewhere. Exported for tests. */
export const pinFiles = [
  "package-lock.json",
  "scripts/tools/packages/package-lock.json",
  "scripts/tools/go.sum",
  "scripts/tools/requirements.txt",
  "native/go.sum",
  "native/runsc/go.sum",
  "sdks/go/go.sum",
];

/** Writes an in-toto statement with a SLSA predicate: what was built, from which commit and inputs, by which tools. */
export function writeProvenance(outDir: string, { version, source, architectures, parts }: ProvenanceInput): void {
  const subject = digestsIn(outDir)
    .filter(({ name }) => !name.endsWith(ending))
    .map(({ name, sha256 }) => ({ name, digest: { sha256 } }));
  const statement = {
    _type: "https://in-toto.io/Statement/v1",
    subject,
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: "https://agent-sandbox.dev/release/v1",
        externalParameters: { version, architectures, parts },
        internalParameters: { sourceDateEpoch: source.epoch, toolchain: toolchain() },
        resolvedDependencies: [
          { uri: `pkg:generic/agent-sandbox@${version}`, digest: { gitCommit: source.commit } },
          ...pinFiles.map((name) => pinOf(name)),
          ...architectures.flatMap(inputsOf),
        ],
      },
      runDetails: { builder: { id: "https://agent-sandbox.dev/release/npm-run-release" } },
    },
  };
  writeFileSync(path.join(outDir, `agent-sandbox-${version}${ending}`), `${JSON.stringify(statement, undefined, 1)}\n`);
}

/** A list by its digest; throws where it is missing, because what it pins would be pinned by nothing. Exported for tests. */
export function pinOf(name: string): { readonly uri: string; readonly digest: { readonly sha256: string } } {
  const file = path.join(rootDir, name);
  if (!existsSync(file)) throw new Error(`${name} is missing, which pins a part of the release`);
  return { uri: name, digest: { sha256: sha256Of(file) } };
}

/** What is taken as it is, by architecture. */
function inputsOf(arch: Architecture): { readonly uri: string; readonly digest: { readonly sha256: string } }[] {
  return [
    { uri: `node-linux-${arch}`, digest: { sha256: sha256Of(readParts(arch).node) } },
    ...carriedDebs(arch).map(({ file }) => ({ uri: path.basename(file), digest: { sha256: sha256Of(file) } })),
  ];
}

function toolchain(): Readonly<Record<string, string>> {
  const { version: esbuild } = JSON.parse(
    readFileSync(path.join(rootDir, "node_modules/esbuild/package.json"), "utf8"),
  ) as { version: string };
  const go = spawnSync(readSetup().go, ["env", "GOVERSION"], { cwd: path.join(rootDir, "native"), encoding: "utf8" });
  return { node: process.version, esbuild, go: go.stdout.trim() };
}
