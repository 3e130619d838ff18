import type { Readable, Writable } from "node:stream";
import { StreamWriter } from "@agent-sandbox/kube";
import type { CommandOutcome } from "./command-outcome.ts";

/** Window size of a terminal, as clients send it over the resize channel. */
export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

/** Which streams the client asked for. */
export interface RemoteCommandOptions {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** The client's end of an exec or attach, whatever protocol carries it. */
export interface RemoteCommand {
  readonly stdin: Readable | undefined;
  readonly stdout: Writable | undefined;
  readonly stderr: Writable | undefined;
  /** Calls `listener` with every size the client sends, the ones already received included. */
  onResize(listener: (size: TerminalSize) => void): void;
  /** Aborts when the client goes away. */
  readonly signal: AbortSignal;
  /** Flushes the output, reports the outcome and closes; a client that does not read it is cut off. */
  finish(outcome: CommandOutcome): Promise<void>;
  /** Ends the connection at once, unsent output and all. */
  cut(): void;
}

/** How long a client may take to read the last of the output after the command ended. */
export const drainTimeoutMs = 10_000;

/** The writers of a client's output; one that reads nothing for a while is cut off. */
export interface RemoteOutput {
  readonly stdout: StreamWriter | undefined;
  readonly stderr: StreamWriter | undefined;
}

/** Opens the writers. Preconditions: once for each command. */
export function openOutput(remote: Pick<RemoteCommand, "stdout" | "stderr" | "cut">): RemoteOutput {
  const { stdout, stderr } = remote;
  const options = { onStall: () => remote.cut() };
  return {
    stdout: stdout === undefined ? undefined : new StreamWriter(stdout, options),
    stderr: stderr === undefined ? undefined : new StreamWriter(stderr, options),
  };
}

/** Bytes of one resize message; the real ones have under 40. */
const resizeBytesMax = 1024;

/** Collects resize messages until a listener is set; only the last one before that matters. */
export class ResizeFeed {
  #last: TerminalSize | undefined;
  #listener: ((size: TerminalSize) => void) | undefined;

  listen(listener: (size: TerminalSize) => void): void {
    this.#listener = listener;
    if (this.#last !== undefined) listener(this.#last);
  }

  /** Takes one JSON message `{"Width":…,"Height":…}`; anything else is ignored, as the kubelet does. */
  take(message: Buffer): void {
    const size = tryParseTerminalSize(message);
    if (size === undefined) return;
    this.#last = size;
    this.#listener?.(size);
  }
}

/** Reads a resize message; undefined when it is not one. Exported for tests. */
export function tryParseTerminalSize(message: Buffer): TerminalSize | undefined {
  if (message.length > resizeBytesMax) return undefined;
  let parsed: unknown;
  try {
    parsed = JSON.parse(message.toString("utf8"));
  } catch {
    return undefined;
  }
  const { Width: cols, Height: rows } = (parsed ?? {}) as Record<string, unknown>;
  if (typeof cols !== "number" || typeof rows !== "number") return undefined;
  if (!(cols > 0 && cols <= 0xffff && rows > 0 && rows <= 0xffff)) return undefined;
  return { cols: Math.floor(cols), rows: Math.floor(rows) };
}
