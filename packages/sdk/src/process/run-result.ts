import { SandboxError } from "../errors/sandbox-error.ts";
import { joined, sizeOf } from "../plane/data-plane.ts";
import type { WireExit } from "./wire.ts";

/** How a process ended. */
export interface ExitStatus {
  /** The program's own code, or 128 plus the signal's number. */
  readonly exitCode: number;
  /** `SIGKILL` and so on where a signal ended it. */
  readonly signal: string | undefined;
  /** It was killed because `commandTimeoutMs` had passed. */
  readonly timedOut: boolean;
  /** The limit for which it was killed, and what the sandbox says of it: `OOMKilled: …`; undefined where none was. */
  readonly reason: string | undefined;
}

/** What a finished command left. */
export interface RunResult extends ExitStatus {
  /** Output as text; what is not valid UTF-8 is replaced. */
  readonly stdout: string;
  readonly stderr: string;
  /** Both streams in the order in which the sandbox read them. */
  readonly combined: string;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** Bytes lost because the connection was away for longer than the sandbox keeps output; 0 in all other cases. */
  readonly droppedBytes: number;
}

/** What a command printed, in pieces. */
export interface Printed {
  readonly stdout: readonly Uint8Array[];
  readonly stderr: readonly Uint8Array[];
  readonly combined: readonly Uint8Array[];
  readonly droppedBytes: number;
}

/** Below this the texts are made at once, so that a printed result shows them; above, when they are asked for. */
const eagerBytesMax = 2 ** 20;

/** Makes a result. Large output is joined and decoded when it is asked for: most callers ask for one form of three. */
export function runResult(status: ExitStatus, { stdout, stderr, combined, droppedBytes }: Printed): RunResult {
  const [out, err] = [once(() => joined(stdout)), once(() => joined(stderr))];
  const [outText, errText] = [once(() => textOf(out())), once(() => textOf(err()))];
  const bothText = once(() => textOf(joined(combined)));
  const lazy: RunResult = {
    ...status,
    droppedBytes,
    get stdout() {
      return outText();
    },
    get stderr() {
      return errText();
    },
    get combined() {
      return bothText();
    },
    get stdoutBytes() {
      return out();
    },
    get stderrBytes() {
      return err();
    },
  };
  return sizeOf(combined) <= eagerBytesMax ? { ...lazy } : lazy;
}

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

/** Thrown by `run` with `check` for a command that failed; and, whatever `check` says, for one that ran out of time. */
export class CommandError extends SandboxError {
  static {
    Object.defineProperty(this.prototype, "name", { value: "CommandError" });
  }

  declare readonly result: RunResult;

  constructor(command: string, result: RunResult) {
    super(result.timedOut ? "command-timeout" : "command-failed", describe(command, result));
    // The message has what matters of it; printers of objects would add all output a second time, as numbers.
    Object.defineProperty(this, "result", { value: result, enumerable: false });
  }
}

/** The exit of a wire message. */
export function exitStatusOf({ code = 0, signal = "", timedOut = false, reason }: WireExit): ExitStatus {
  return { exitCode: code, signal: signal === "" ? undefined : signal, timedOut, reason };
}

// Enough to see why, little enough for one log line.
const stderrCharsMax = 400;

function describe(command: string, { timedOut, signal, exitCode, reason, stderr }: RunResult): string {
  const ended = signal === undefined ? `exited with ${exitCode}` : `was ended by ${signal}`;
  const how = timedOut ? "ran out of time" : `${ended}${reason === undefined ? "" : ` (${reason})`}`;
  const tail = stderr.trim().slice(-stderrCharsMax);
  return `command '${command.length > 80 ? `${command.slice(0, 77)}...` : command}' ${how}${tail === "" ? "" : `: ${tail}`}`;
}
