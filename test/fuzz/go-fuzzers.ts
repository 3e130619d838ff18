import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import { goEnvironment, readSetup, rootDir } from "../../scripts/checkout.ts";

/** Inputs kept per fuzzer, the smallest first: they are run with every `go test`. */
const keptMax = 16;

/** A `Fuzz*` function of native/. */
export interface GoFuzzer {
  /** With its package: `layer.FuzzUnpack`. */
  readonly name: string;
  readonly function: string;
  readonly packageDir: string;
}

/** All of them, found in the sources. */
export function goFuzzers(): GoFuzzer[] {
  const native = path.join(rootDir, "native/internal");
  const files = readdirSync(native, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith("_test.go"));
  return files.flatMap((file) => {
    const source = readFileSync(path.join(native, file), "utf8");
    const packageDir = path.join(native, path.dirname(file));
    return [...source.matchAll(/^func (Fuzz\w+)\(/gm)].map(([, found = ""]) => ({
      name: `${path.basename(packageDir)}.${found}`,
      function: found,
      packageDir,
    }));
  });
}

/** What a search with Go's own fuzzer did. */
export interface GoFuzzResult {
  readonly executions: number;
  readonly corpus: number;
  /** Go's report of the crash, whose input it has put into the package's testdata. */
  readonly crash?: string;
}

/** Searches for a while. What reached code for the first time is kept in the package's testdata. */
export function runGoFuzzer({ function: name, packageDir }: GoFuzzer, seconds: number): GoFuzzResult {
  const corpusDir = path.join(packageDir, "testdata/fuzz");
  const args = [
    "test",
    "-run=^$",
    `-fuzz=^${name}$`,
    `-fuzztime=${seconds}s`,
    "-fuzzminimizetime=1s",
    ".",
    `-test.fuzzcachedir=${corpusDir}`,
  ];
  const child = spawnSync(readSetup().go, args, { cwd: packageDir, env: goEnvironment(), encoding: "utf8" });
  const executions = [...child.stdout.matchAll(/execs: (\d+)/g)].at(-1)?.[1];
  const corpus = prune(path.join(corpusDir, name));
  return { executions: Number(executions ?? 0), corpus, ...(child.status !== 0 && { crash: child.stdout }) };
}

function prune(dir: string): number {
  let files: string[];
  try {
    files = readdirSync(dir).map((file) => path.join(dir, file));
  } catch (error) {
    // A fuzzer that found nothing has no directory.
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
  const bySize = files.toSorted((a, b) => statSync(a).size - statSync(b).size);
  for (const file of bySize.slice(keptMax)) rmSync(file);
  return Math.min(files.length, keptMax);
}
