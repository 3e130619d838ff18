import type { Coverage } from "./coverage.ts";
import type { Ground } from "./ground.ts";
import type { Mutation } from "./mutations.ts";
import { SimulationFailure, simulate } from "./simulation.ts";

/** Some seeds in a row, the last one included. */
export interface SeedRange {
  readonly from: number;
  readonly to: number;
}

/** A seed that failed, in words that can cross between processes. */
export interface FailedSeed {
  readonly seed: number;
  /** What did not hold, what the user had done, and how to run this seed alone. */
  readonly text: string;
  /** What the controllers wrote since the world last rested, one line each. */
  readonly writes: readonly string[];
}

/** What a range is run on. */
export interface SeedRangeOptions extends SeedRange {
  readonly ground: Ground;
  readonly coverage: Coverage;
  readonly mutation?: Mutation;
  /** Stops after so many failures. */
  readonly failuresMax: number;
}

/** Runs every seed of a range; a failure does not keep the next one from being run. */
export async function runRange({ from, to, failuresMax, ...options }: SeedRangeOptions): Promise<FailedSeed[]> {
  const failures: FailedSeed[] = [];
  for (let seed = from; seed <= to && failures.length < failuresMax; seed++) {
    try {
      await simulate({ ...options, seed });
    } catch (error) {
      failures.push(failedSeed(seed, error));
    }
  }
  return failures;
}

function failedSeed(seed: number, error: unknown): FailedSeed {
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  if (!(error instanceof SimulationFailure)) return { seed, text: `seed ${seed}: ${text}`, writes: [] };
  const writes = error.writes.map(({ method, path, status, body }) => `${status} ${method} ${path} ${body}`);
  return { seed, text: error.message, writes };
}
