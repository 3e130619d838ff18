import { SandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import type { EngineError } from "@agent-sandbox/server/main/engine-error";
import { CliError } from "./cli-error.ts";
import { type Context, hasColour } from "./context.ts";
import { exitCodeFor, exitCodeOfEngineError, exitCodes } from "./exit-codes.ts";
import { unguarded } from "./terminal/harmless.ts";

/** Prints an error for the user, with what to do about it, and returns the exit code. */
export function reportError(error: unknown, { stderr, env }: Context): number {
  const mark = hasColour(stderr, env) ? "\x1b[31merror:\x1b[39m" : "error:";
  const say = (message: string, hint?: string): void => {
    unguarded(stderr).write(mark);
    stderr.write(` ${message}\n${hint === undefined ? "" : `${hint}\n`}`);
  };
  if (error instanceof CliError) {
    say(error.message, error.hint);
    return error.exitCode;
  }
  if (error instanceof SandboxError) {
    const id = error.requestId === undefined ? "" : ` (request ${error.requestId})`;
    // A message that says itself what to do needs no second one.
    say(`${error.message}${id}`, /; (start|run|name|use|resume|let) /.test(error.message) ? undefined : error.hint);
    return exitCodeFor(error.code);
  }
  if (isEngineError(error)) {
    say(error.message);
    return exitCodeOfEngineError(error.code);
  }
  if (error instanceof Error && error.name === "ApiError") {
    say(error.message);
    return exitCodes.failed;
  }
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  say(`unexpected: ${text}`, "This is a bug; please report it with the text above.");
  return exitCodes.failed;
}

/** Known by its name: a command that starts no engine does not load its code. */
export function isEngineError(error: unknown): error is EngineError {
  return error instanceof Error && error.name === "EngineError";
}
