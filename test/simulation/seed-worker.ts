// Runs the ranges its parent sends and tells what became of them; ends when the parent lets go of it.
import { Coverage } from "./coverage.ts";
import { Ground } from "./ground.ts";
import { mutations } from "./mutations.ts";
import { type FailedSeed, runRange, type SeedRange } from "./seed-range.ts";

/** What the parent asks for. */
export interface RangeRequest extends SeedRange {
  /** The name of a planted bug. */
  readonly mutation?: string;
  readonly failuresMax: number;
}

/** What became of one range. */
export interface RangeReport extends SeedRange {
  readonly failures: readonly FailedSeed[];
  readonly meetings: readonly (readonly [string, number])[];
  /** Processor time of this process since its last report. */
  readonly cpuMs: number;
}

// Injected errors are made by the thousand, and their stack traces are not read.
Error.stackTraceLimit = 0;
const ground = await Ground.open();
let before = process.cpuUsage();

process.on("message", (request: RangeRequest) => {
  void report(request).then((answer) => process.send?.(answer));
});
// The parent's first range waits for this word: a message to a process without a listener would be lost.
process.send?.("ready");

async function report({ from, to, mutation: name, failuresMax }: RangeRequest): Promise<RangeReport> {
  const coverage = new Coverage();
  const mutation = mutations.find((entry) => entry.name === name);
  const planted = mutation === undefined ? {} : { mutation };
  const failures = await runRange({ from, to, failuresMax, ground, coverage, ...planted });
  const { user, system } = process.cpuUsage(before);
  before = process.cpuUsage();
  return { from, to, failures, meetings: coverage.entries(), cpuMs: (user + system) / 1000 };
}
