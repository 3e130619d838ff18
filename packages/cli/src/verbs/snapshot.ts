import { formatBytes } from "../bytes.ts";
import { usageError } from "../cli-error.ts";
import { type EngineFlags, required, type Verb } from "../context.ts";
import { parseDurationMs } from "../duration.ts";
import { exitCodes } from "../exit-codes.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import { kindOf } from "../objects/kinds.ts";
import { Progress } from "../output/progress.ts";
import { reportError } from "../report-error.ts";
import { deleteVerb } from "./delete.ts";
import { type GetFlags, getObjects } from "./get.ts";

interface SaveFlags extends EngineFlags {
  readonly name?: string;
  /** False where `--no-memory` is given. */
  readonly memory?: boolean;
  readonly ttl?: string;
}

/** Saves a sandbox under a name. */
export const snapshotCreateVerb: Verb<SaveFlags> = async (context, args, flags) => {
  const options = saveOptions(flags);
  using progress = new Progress(context);
  const sandbox = await findSandbox(required(args, 0, "sandbox"), flags, context);
  progress.show(`saving ${sandbox.name}`);
  const taken = await sandbox.snapshot({ ...options, signal: context.signal });
  progress.clear();
  context.stdout.write(`${taken.name}\n`);
  const size = taken.sizeBytes === undefined ? [] : [`${formatBytes(taken.sizeBytes)} saved`];
  const still = taken.standstillMs === undefined ? [] : [`the sandbox stood still for ${taken.standstillMs} ms`];
  const facts = [...size, ...still];
  if (facts.length > 0) context.stderr.write(`${facts.join("; ")}\n`);
};

/** Lists snapshots. */
export const snapshotLsVerb: Verb = (context, _args, flags) =>
  getObjects(context, kindOf("snapshots"), [], flags as GetFlags);

/** Deletes snapshots. */
export const snapshotRmVerb: Verb = (context, names, flags) => deleteVerb(context, ["snapshots", ...names], flags);

interface ForkFlags extends SaveFlags {
  readonly count: string;
}

/** Copies a sandbox; prints the names in order, and the error of each that there is none of. */
export const forkVerb: Verb<ForkFlags> = async (context, args, flags) => {
  const options = saveOptions(flags);
  const count = countOf(flags.count);
  using progress = new Progress(context);
  const sandbox = await findSandbox(required(args, 0, "sandbox"), flags, context);
  progress.show(`forking ${sandbox.name}`);
  const onProgress = (text: string): void => progress.show(text);
  const forks = await sandbox.fork(count, { ...options, onProgress, signal: context.signal });
  progress.clear();
  const print = (name: string): void => void context.stdout.write(`${name}\n`);
  return printForks(forks, print, (error) => reportError(error, context));
};

/** Prints the names in order and reports each error; the exit code is that of the first one. Exported for tests. */
export function printForks(
  forks: readonly ({ readonly name: string } | Error)[],
  print: (name: string) => void,
  report: (error: Error) => number,
): number {
  let exitCode: number = exitCodes.ok;
  for (const fork of forks) {
    if (!(fork instanceof Error)) {
      print(fork.name);
      continue;
    }
    const code = report(fork);
    if (exitCode === exitCodes.ok) exitCode = code;
  }
  return exitCode;
}

/** Reads `--count`. Exported for tests. */
export function countOf(text: string): number {
  const count = Number(text);
  if (!/^\d{1,4}$/.test(text) || count < 1) throw usageError(`--count: '${text}' is not a number from 1 on`);
  return count;
}

function saveOptions({ name, memory, ttl }: SaveFlags) {
  return {
    ...(name !== undefined && { name }),
    ...(memory === false && { memory }),
    ...(ttl !== undefined && { ttlMs: parseDurationMs("--ttl", ttl) }),
  };
}
