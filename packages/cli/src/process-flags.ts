import { fstatSync } from "node:fs";
import type { SpawnOptions } from "@agent-sandbox/sdk";
import type { Context } from "./context.ts";
import { parseDurationMs } from "./duration.ts";
import { parsePairs } from "./name-value.ts";

/** Flags of every verb that starts a process. */
export interface ProcessFlags {
  readonly stdin?: boolean;
  readonly tty?: boolean;
  readonly env?: string[];
  readonly workdir?: string;
  readonly user?: string;
  readonly commandTimeout?: string;
}

/** The SDK's options for the flags. */
export function spawnOptions(flags: ProcessFlags, { env }: Context): SpawnOptions {
  const { workdir, user, commandTimeout } = flags;
  return {
    env: parsePairs("--env", flags.env ?? [], env),
    ...(workdir !== undefined && { cwd: workdir }),
    ...(user !== undefined && { user }),
    ...(commandTimeout !== undefined && { commandTimeoutMs: parseDurationMs("--command-timeout", commandTimeout) }),
  };
}

/** Whether standard input is something to read: asked for, or a pipe, a file or a socket. */
export function hasInput({ stdin }: ProcessFlags, context: Context): boolean {
  if (stdin !== undefined) return stdin;
  try {
    const info = fstatSync((context.stdin as { fd?: number }).fd ?? 0);
    return info.isFIFO() || info.isFile() || info.isSocket();
  } catch {
    // A closed descriptor has nothing to say.
    return false;
  }
}
