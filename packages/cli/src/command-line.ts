import { CommanderError } from "commander";
import type { Context } from "./context.ts";
import { exitCodes } from "./exit-codes.ts";
import { createProgram } from "./program.ts";
import { reportError } from "./report-error.ts";

/** Runs one command line in this process and ends the process with its exit code. */
export async function runCommandLine(args: readonly string[]): Promise<void> {
  const leaving = new AbortController();
  let hasComplained = false;
  const context: Context = {
    // Each stream is opened by whoever uses it first: most verbs read nothing and have nothing to complain about.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    get stderr() {
      hasComplained = true;
      return process.stderr;
    },
    env: process.env,
    signal: leaving.signal,
    nowMs: Date.now,
  };
  // A closed pipe (`| head`) is the reader's way of saying that it has seen enough.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  const onSignal = (): void => {
    if (leaving.signal.aborted) process.exit(exitCodes.interrupted);
    leaving.abort(new Interrupted("interrupted"));
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  let exitCode: number = exitCodes.ok;
  const program = createProgram(async (verb, positional, flags) => {
    exitCode = (await verb(context, positional, flags)) ?? exitCodes.ok;
  }, args[0]);
  try {
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    exitCode = exitCodeOfError(error, context);
  }
  process.exitCode = exitCode;
  // Idle connections and a terminal's input would keep the process; what was printed must be out first.
  await drained(process.stdout);
  if (hasComplained || exitCode !== exitCodes.ok) await drained(process.stderr);
  process.exit(exitCode);
}

/** The reason of everything that Ctrl-C cancels. */
class Interrupted extends Error {}

function exitCodeOfError(error: unknown, context: Context): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
  if (error instanceof Interrupted) return exitCodes.interrupted;
  return reportError(error, context);
}

function drained(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    if (stream.writableLength === 0 || stream.destroyed) resolve();
    else stream.write("", () => resolve());
  });
}
