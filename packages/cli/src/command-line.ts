import type { Context } from "./context.ts";
import { exitCodes } from "./exit-codes.ts";
import { type Command, parseCommand } from "./parsing/parse-command.ts";
import { guarded } from "./terminal/harmless.ts";

/** Runs one command line in this process and ends the process with its exit code. */
export async function runCommandLine(words: readonly string[]): Promise<void> {
  const leaving = new AbortController();
  let hasComplained = false;
  let complaints: NodeJS.WriteStream | undefined;
  const context: Context = {
    // A stream is opened at its first use: most verbs read no input and write nothing to standard error.
    get stdin() {
      return process.stdin;
    },
    stdout: guarded(process.stdout),
    get stderr() {
      hasComplained = true;
      complaints ??= guarded(process.stderr);
      return complaints;
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
  try {
    exitCode = await runCommand(parseCommand(words), context);
  } catch (error) {
    exitCode = await exitCodeOfError(error, context);
  }
  process.exitCode = exitCode;
  // Idle connections and a terminal's input would keep the process; what was printed must be out first.
  await drained(process.stdout);
  if (hasComplained || exitCode !== exitCodes.ok) await drained(process.stderr);
  process.exit(exitCode);
}

/** The reason of everything that Ctrl-C cancels. */
class Interrupted extends Error {}

/** Columns of a help text that no terminal sets a width for. */
const helpWidth = 80;

async function runCommand(command: Command, context: Context): Promise<number> {
  if (command.do === "run") {
    const verb = await command.load();
    // The parser filled these from the flags of the very definition that loads the verb.
    return (await verb(context, command.args, command.flags as never)) ?? exitCodes.ok;
  }
  const { helpText } = await import("./help/help-text.ts");
  const stream = command.isAsked ? context.stdout : context.stderr;
  stream.write(helpText(command.path, stream.isTTY === true ? stream.columns : helpWidth));
  return command.isAsked ? exitCodes.ok : exitCodes.usage;
}

async function exitCodeOfError(error: unknown, context: Context): Promise<number> {
  if (error instanceof Interrupted) return exitCodes.interrupted;
  const { reportError } = await import("./report-error.ts");
  return reportError(error, context);
}

function drained(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    if (stream.writableLength === 0 || stream.destroyed) resolve();
    else stream.write("", () => resolve());
  });
}
