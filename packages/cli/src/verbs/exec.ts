import { loginShell } from "@agent-sandbox/sdk/process/login-shell";
import { usageError } from "../cli-error.ts";
import { type EngineFlags, required, type Verb } from "../context.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import type { ProcessFlags } from "../process-flags.ts";
import { runInSandbox } from "../run-in-sandbox.ts";

/** Runs a command in a sandbox that exists. */
export const execVerb: Verb = async (context, [name, ...rest], flags) => {
  const options = flags as EngineFlags & ProcessFlags;
  const command = rest[0] === "--" ? rest.slice(1) : rest;
  if (command.length === 0) throw usageError("nothing to run", "Write: agent-sandbox exec SANDBOX -- COMMAND");
  const sandbox = await findSandbox(name ?? "", options, context);
  return runInSandbox(context, sandbox, command, options);
};

/** Opens a shell in a sandbox. */
export const shellVerb: Verb = async (context, args, flags) => {
  const options = flags as EngineFlags & ProcessFlags;
  const sandbox = await findSandbox(required(args, 0, "sandbox"), options, context);
  return runInSandbox(context, sandbox, loginShell, { ...options, tty: context.stdin.isTTY === true });
};
