import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { readDevDir, rootDir } from "../checkout.ts";
import { copySources, inStaging, type PackageOptions } from "./staging.ts";

interface Distribution {
  readonly name: string;
  readonly folder: string;
}

/** The second is an alias that requires the first at its own version. */
const distributions: readonly Distribution[] = [
  { name: "agent_sandbox_sdk", folder: "sdks/python" },
  { name: "agentic_sandbox_client", folder: "sdks/python/agentic-sandbox-client" },
];

// 1980-01-01, the first day a zip archive can name: hatchling writes it into every entry instead of the files' own times.
const sourceDateEpoch = "315532800";

/** Builds a wheel and an sdist of every Python distribution; returns the names of the files. */
export async function buildPython(options: PackageOptions): Promise<readonly string[]> {
  mkdirSync(options.outDir, { recursive: true });
  const built: string[] = [];
  for (const distribution of distributions) built.push(...(await buildDistribution(distribution, options)));
  return built;
}

function buildDistribution(
  { name, folder }: Distribution,
  { version, outDir }: PackageOptions,
): Promise<readonly string[]> {
  const from = path.join(rootDir, folder);
  const pythonVersion = pep440(version);
  return inStaging((dir) => {
    for (const part of ["src", "README.md"]) copySources(path.join(from, part), path.join(dir, part));
    copySources(path.join(rootDir, "LICENSE"), path.join(dir, "LICENSE"));
    const project = readFileSync(path.join(from, "pyproject.toml"), "utf8");
    writeFileSync(path.join(dir, "pyproject.toml"), withVersion(project, pythonVersion));
    const args = ["-m", "hatchling", "build", "--directory", path.resolve(outDir), "-t", "wheel", "-t", "sdist"];
    const env = { ...process.env, SOURCE_DATE_EPOCH: sourceDateEpoch, PYTHONDONTWRITEBYTECODE: "1" };
    const python = path.join(readDevDir("python"), "bin/python");
    execFileSync(python, args, { cwd: dir, env, stdio: ["ignore", "ignore", "pipe"] });
    return [`${name}-${pythonVersion}-py3-none-any.whl`, `${name}-${pythonVersion}.tar.gz`];
  });
}

/** A pyproject.toml in which the project, and what it requires of ours, has this version. */
function withVersion(project: string, version: string): string {
  return project
    .replace(/^version = ".*"$/m, `version = "${version}"`)
    .replace(/"agent-sandbox-sdk==[^"]*"/, `"agent-sandbox-sdk==${version}"`);
}

/** Python's spelling of a version: `1.2.0-rc.1` is `1.2.0rc1` there. */
export function pep440(version: string): string {
  const parts = /^(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.(\d+))?$/.exec(version);
  if (parts === null)
    throw new Error(`version '${version}' has no spelling in Python; use 1.2.3, or 1.2.3-alpha.1, -beta.1 or -rc.1`);
  const [, release = "", stage, number = ""] = parts;
  return stage === undefined ? release : `${release}${{ alpha: "a", beta: "b", rc: "rc" }[stage] ?? ""}${number}`;
}
