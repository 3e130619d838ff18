// Searches for inputs that break a parser's promises, guided by the code they reach, and keeps what it finds.
//
//   npm run fuzz                                 every target, one minute each
//   npm run fuzz -- --minutes 10 dns-query ...   some of them, ten minutes each
import { parseArgs } from "node:util";
import { allTargets } from "./all-targets.ts";
import { readCorpus, writeCorpus } from "./corpus.ts";
import { Coverage } from "./coverage.ts";
import type { FuzzTarget } from "./fuzz-target.ts";
import { goFuzzers, runGoFuzzer } from "./go-fuzzers.ts";
import { search } from "./search.ts";

interface Outcome {
  readonly executions: number;
  readonly corpus: number;
  readonly crash?: string;
}

type Searcher = (limitMs: number, seed: number) => Outcome | Promise<Outcome>;

const searchers = new Map<string, Searcher>([
  ...allTargets.map(
    (target) => [target.name, (limitMs: number, seed: number) => searchTarget(target, limitMs, seed)] as const,
  ),
  ...goFuzzers().map((fuzzer) => [fuzzer.name, (limitMs: number) => runGoFuzzer(fuzzer, limitMs / 1000)] as const),
]);

const { values, positionals } = parseArgs({
  options: { minutes: { type: "string", default: "1" }, seed: { type: "string", default: String(Date.now()) } },
  allowPositionals: true,
});
const unknown = positionals.filter((name) => !searchers.has(name));
if (unknown.length > 0) {
  throw new Error(`no target ${unknown.join(", ")}; there are ${[...searchers.keys()].join(", ")}`);
}
process.stdout.write(`seed ${values.seed}\n${"target".padEnd(24)} executions  corpus  crashes\n`);
for (const [name, run] of searchers) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  report(name, await run(Number(values.minutes) * 60_000, Number(values.seed)));
}

function report(name: string, { executions, corpus, crash }: Outcome): void {
  const figures = [String(executions).padStart(10), String(corpus).padStart(6), crash === undefined ? "0" : "1"];
  process.stdout.write(`${name.padEnd(24)} ${figures.join("  ")}\n`);
  if (crash === undefined) return;
  process.exitCode = 1;
  process.stdout.write(`${crash}\n`);
}

async function searchTarget(target: FuzzTarget, limitMs: number, seed: number): Promise<Outcome> {
  const endMs = performance.now() + limitMs;
  using coverage = new Coverage();
  const isOver = (): boolean => performance.now() >= endMs;
  const { executions, corpus, crash } = await search({ target, corpus: readCorpus(target), seed, coverage, isOver });
  // A crash joins the corpus, so that it is a test until it is mended and after.
  writeCorpus(target, crash === undefined ? corpus : [...corpus, crash.input]);
  if (crash === undefined) return { executions, corpus: corpus.length };
  const input = JSON.stringify(crash.input.toString("latin1"));
  return { executions, corpus: corpus.length, crash: `  ${crash.error.stack ?? ""}\n  input ${input}` };
}
