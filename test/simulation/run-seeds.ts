import { type ChildProcess, fork } from "node:child_process";
import { availableParallelism } from "node:os";
import path from "node:path";
import { Coverage } from "./coverage.ts";
import type { FailedSeed, SeedRange } from "./seed-range.ts";
import type { RangeReport, RangeRequest } from "./seed-worker.ts";

/** What a run of many seeds needs. */
export interface RunSeedsOptions extends SeedRange {
  /** Processes that share the work; default one per core. */
  readonly jobs?: number;
  /** The name of a planted bug. */
  readonly mutation?: string;
  /** Stops after so many failures; default 10. */
  readonly failuresMax?: number;
  /** Told of each piece that is done. */
  readonly onRange?: (report: RangeReport) => void;
}

/** What became of the run. */
export interface SeedsReport {
  readonly failures: readonly FailedSeed[];
  readonly coverage: Coverage;
  /** Seeds that were run. */
  readonly seeds: number;
  /** Processor time of all processes. */
  readonly cpuMs: number;
}

/** Small enough that the processes end together, large enough that handing out costs nothing. */
const pieceSeeds = 20;

/** Runs seeds over several processes; which of them ran a seed makes no difference to it. */
export async function runSeeds(options: RunSeedsOptions): Promise<SeedsReport> {
  const { from, to, jobs = availableParallelism(), failuresMax = 10, mutation, onRange } = options;
  const failures: FailedSeed[] = [];
  const coverage = new Coverage();
  let next = from;
  let seeds = 0;
  let cpuMs = 0;
  const take = (): RangeRequest | undefined => {
    if (next > to || failures.length >= failuresMax) return undefined;
    const piece = { from: next, to: Math.min(to, next + pieceSeeds - 1), failuresMax };
    next = piece.to + 1;
    return mutation === undefined ? piece : { ...piece, mutation };
  };
  const onReport = (report: RangeReport): void => {
    failures.push(...report.failures);
    coverage.merge(report.meetings);
    seeds += report.to - report.from + 1;
    cpuMs += report.cpuMs;
    onRange?.(report);
  };
  const pieces = Math.ceil((to - from + 1) / pieceSeeds);
  await Promise.all(Array.from({ length: Math.min(jobs, pieces) }, () => work(take, onReport)));
  return { failures: failures.sort((a, b) => a.seed - b.seed), coverage, seeds, cpuMs };
}

/** One process: gets a piece, then another when it has reported, and ends when there is none. */
async function work(take: () => RangeRequest | undefined, onReport: (report: RangeReport) => void): Promise<void> {
  const worker = fork(path.join(import.meta.dirname, "seed-worker.ts"), [], { execArgv: [] });
  const ended = Promise.withResolvers<void>();
  worker.on("error", ended.reject);
  worker.on("exit", (code, signal) => {
    if (code === 0) ended.resolve();
    else ended.reject(new Error(`a process of the simulation ended with ${signal ?? code}`));
  });
  worker.on("message", (message: RangeReport | "ready") => {
    if (message !== "ready") onReport(message);
    give(worker, take());
  });
  await ended.promise;
}

function give(worker: ChildProcess, request: RangeRequest | undefined): void {
  if (request === undefined) worker.disconnect();
  else worker.send(request);
}
