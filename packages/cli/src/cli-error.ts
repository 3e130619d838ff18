import { exitCodes } from "./exit-codes.ts";

/** Ends the command with one line for the user and an exit code. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: number;
  /** A second line: what to do. */
  readonly hint: string | undefined;

  constructor(
    message: string,
    options: { readonly exitCode?: number; readonly hint?: string; readonly cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.exitCode = options.exitCode ?? exitCodes.failed;
    this.hint = options.hint;
  }
}

/** For a command line that makes no sense. */
export function usageError(message: string, hint?: string): CliError {
  return new CliError(message, { exitCode: exitCodes.usage, ...(hint !== undefined && { hint }) });
}
