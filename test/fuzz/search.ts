import type { Coverage } from "./coverage.ts";
import type { FuzzTarget } from "./fuzz-target.ts";
import { mutate } from "./mutate.ts";
import { SeededRandom } from "./random.ts";

/** One input may take this long: parsers take microseconds, so a second is a loop that grows with its input. */
const inputMsMax = 1000;

/** How a search is made. */
export interface SearchOptions {
  readonly target: FuzzTarget;
  readonly corpus: readonly Buffer[];
  readonly seed: number;
  /** Asked before every input. */
  readonly isOver: (executions: number) => boolean;
  /** Where given, inputs that reach code for the first time join the corpus. */
  readonly coverage?: Coverage;
}

/** An input that broke a promise. */
export interface Crash {
  readonly input: Buffer;
  readonly error: Error;
}

/** What a search did. */
export interface SearchResult {
  readonly executions: number;
  readonly corpus: readonly Buffer[];
  readonly crash?: Crash;
}

/** Tries the corpus as it is, then changed inputs, until the first crash or the end. */
export async function search({ target, corpus, seed, isOver, coverage }: SearchOptions): Promise<SearchResult> {
  const kept = [...corpus];
  const random = new SeededRandom(seed);
  let executions = 0;
  for (const input of corpus) {
    const crash = await tryInput(target, input);
    executions += 1;
    coverage?.hasGrown();
    if (crash !== undefined) return { executions, corpus: kept, crash };
  }
  while (!isOver(executions)) {
    const input = mutate({ corpus: kept, dictionary: target.dictionary }, random);
    const crash = await tryInput(target, input);
    executions += 1;
    if (crash !== undefined) return { executions, corpus: kept, crash };
    if (coverage?.hasGrown() === true) kept.push(input);
  }
  return { executions, corpus: kept };
}

async function tryInput(target: FuzzTarget, input: Buffer): Promise<Crash | undefined> {
  const before = process.cpuUsage();
  try {
    // A parser that keeps or changes what it was given must not change the corpus.
    await target.run(Buffer.from(input));
  } catch (error) {
    return { input, error: error instanceof Error ? error : new Error(String(error)) };
  }
  // Of the processor, not of the clock: on a busy machine a process may wait for a second without having done anything.
  const { user, system } = process.cpuUsage(before);
  const tookMs = (user + system) / 1000;
  return tookMs > inputMsMax ? { input, error: new Error(`took ${Math.round(tookMs)} ms`) } : undefined;
}
