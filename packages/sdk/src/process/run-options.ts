import type { OptionNames } from "../errors/known-options.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import type { WireSpec } from "./wire.ts";

/** A command: text goes to the sandbox's shell (`/bin/sh -c`), a list is argv and meets no shell. */
export type Command = string | readonly string[];

/** Options of `spawn`, and the part of `run`'s that is about the process. */
export interface SpawnOptions {
  /** Laid over the sandbox's environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Start from an empty environment instead of the sandbox's. Default false. */
  readonly clearEnv?: boolean;
  /** Absolute, or relative to the sandbox's working directory, which is the default. */
  readonly cwd?: string;
  /** `name`, `uid`, `name:group` or `uid:gid`. Default: the sandbox's own user. */
  readonly user?: string;
  /** The whole process tree is killed after this long. Default: no limit. */
  readonly commandTimeoutMs?: number;
  /** How long the sandbox may take to start the command, waking up included. Default 120,000. */
  readonly requestTimeoutMs?: number;
  /** A name for people, shown in `processes()`. */
  readonly tag?: string;
  /** What it prints also goes to the sandbox's log, each line behind its tag, or its program and id; not without the daemon. Default false. */
  readonly log?: boolean;
  /** Bytes of output kept for replay after a lost connection. Default 1 MiB, at most 64 MiB. */
  readonly outputBufferBytes?: number;
  /**
   * Kills the process tree, as the command's own timeout does, and rejects with the signal's reason once it is gone; also
   * where the command had not begun. Where the sandbox cannot be reached, it rejects after five seconds.
   */
  readonly signal?: AbortSignal;
}

/** What standard input can be given as. */
export type InputSource = string | Uint8Array | AsyncIterable<Uint8Array | string>;

/** Options of `run`. */
export interface RunOptions extends SpawnOptions {
  /** Given to the command's standard input, which is closed behind it. Default: empty. */
  readonly stdin?: InputSource;
  /** Called with text as it arrives; a character is never cut in two. */
  readonly onStdout?: (text: string) => void;
  readonly onStderr?: (text: string) => void;
  /** Throw a CommandError when the exit code is not 0. Default false. */
  readonly check?: boolean;
}

/** The window of a terminal. */
export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

/** Options of `pty`. */
export interface PtyOptions extends SpawnOptions {
  /** Default 80 x 24. */
  readonly size?: TerminalSize;
}

const spawnOptionNames: OptionNames<SpawnOptions> = {
  env: true,
  clearEnv: true,
  cwd: true,
  user: true,
  commandTimeoutMs: true,
  requestTimeoutMs: true,
  tag: true,
  log: true,
  outputBufferBytes: true,
  signal: true,
};

/** The names of the options of each call that starts a process. */
export const processOptionNames: {
  readonly spawn: OptionNames<SpawnOptions>;
  readonly run: OptionNames<RunOptions>;
  readonly pty: OptionNames<PtyOptions>;
} = {
  spawn: spawnOptionNames,
  run: { ...spawnOptionNames, stdin: true, onStdout: true, onStderr: true, check: true },
  pty: { ...spawnOptionNames, size: true },
};

/** Long enough for a sandbox to wake from a cold disk, short enough to notice that it never will. */
export const requestTimeoutDefaultMs = 120_000;

/** Makes the wire form of a command; throws `invalid-argument` for what no sandbox could run. */
export function wireSpecOf(command: Command, options: SpawnOptions): WireSpec {
  const argv = typeof command === "string" ? ["/bin/sh", "-c", command] : [...command];
  if (argv.length === 0 || argv[0] === "") throw new SandboxError("invalid-argument", "command is empty");
  const { env, clearEnv, cwd, user, commandTimeoutMs, tag, log, outputBufferBytes } = options;
  return {
    command: argv,
    ...(env !== undefined && { env }),
    ...(clearEnv === true && { clearEnv }),
    ...(cwd !== undefined && { cwd }),
    ...(user !== undefined && { user }),
    ...(commandTimeoutMs !== undefined && { timeout: durationOf("commandTimeoutMs", commandTimeoutMs) }),
    ...(tag !== undefined && { tag }),
    ...(log === true && { log }),
    ...(outputBufferBytes !== undefined && { outputBufferBytes: String(outputBufferBytes) }),
  };
}

/** A protobuf duration in JSON: seconds, with nine digits behind the point at most. */
function durationOf(option: string, ms: number): string {
  if (!Number.isFinite(ms) || ms <= 0)
    throw new SandboxError("invalid-argument", `${option} must be above 0, not ${ms}`);
  return `${(ms / 1000).toFixed(3)}s`;
}
