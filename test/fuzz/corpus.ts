import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { FuzzTarget } from "./fuzz-target.ts";

const corpusDir = path.join(import.meta.dirname, "corpus");

/** The inputs a search begins with: the target's own, and what earlier searches found worth keeping. */
export function readCorpus(target: FuzzTarget): Buffer[] {
  const seeds = target.seeds.map((seed) =>
    typeof seed === "string" ? Buffer.from(seed, "latin1") : Buffer.from(seed),
  );
  const file = corpusFile(target);
  if (!existsSync(file)) return seeds;
  const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
  return [...seeds, ...lines.map((line) => Buffer.from(JSON.parse(line) as string, "latin1"))];
}

/** Writes what a search found beside the seeds, one JSON string of latin1 text per line. */
export function writeCorpus(target: FuzzTarget, corpus: readonly Buffer[]): void {
  const found = corpus.slice(target.seeds.length).map((input) => JSON.stringify(input.toString("latin1")));
  writeFileSync(corpusFile(target), found.map((line) => `${line}\n`).join(""));
}

function corpusFile({ name }: FuzzTarget): string {
  return path.join(corpusDir, `${name}.jsonl`);
}
