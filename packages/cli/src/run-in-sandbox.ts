import type { Sandbox, SandboxProcess } from "@agent-sandbox/sdk";
import { SandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import type { Context } from "./context.ts";
import { hasInput, type ProcessFlags, spawnOptions } from "./process-flags.ts";
import { reportError } from "./report-error.ts";
import { runSession, startFailureCode, terminalSize } from "./terminal/session.ts";

/** Runs a command in a sandbox, tied to this terminal, and returns its exit code. */
export async function runInSandbox(
  context: Context,
  sandbox: Sandbox,
  argv: readonly string[],
  flags: ProcessFlags,
): Promise<number> {
  const hasTerminal = flags.tty === true;
  const isInput = hasInput(flags, context);
  let process: SandboxProcess;
  try {
    process = await start(context, sandbox, argv, { flags, isInput });
  } catch (error) {
    if (!(error instanceof SandboxError)) throw error;
    reportError(error, context);
    return startFailureCode(error.code);
  }
  return runSession(context, process, { hasTerminal, hasInput: isInput });
}

async function start(
  context: Context,
  sandbox: Sandbox,
  argv: readonly string[],
  { flags, isInput }: { readonly flags: ProcessFlags; readonly isInput: boolean },
): Promise<SandboxProcess> {
  const options = spawnOptions(flags, context);
  if (flags.tty === true) return sandbox.pty(argv, { ...options, size: terminalSize(context) });
  const process = await sandbox.spawn(argv, options);
  if (!isInput) await process.stdin.end().catch(() => undefined);
  return process;
}
