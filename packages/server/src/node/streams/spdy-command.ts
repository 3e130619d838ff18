import type { Duplex, Readable, Writable } from "node:stream";
import { SpdyConnection, type SpdyStream } from "@agent-sandbox/kube";
import { type CommandOutcome, outcomeStatus } from "./command-outcome.ts";
import {
  drainTimeoutMs,
  type RemoteCommand,
  type RemoteCommandOptions,
  ResizeFeed,
  type TerminalSize,
} from "./remote-command.ts";

/** Stream protocols for exec and attach over SPDY, the preferred one first. */
export const spdyCommandProtocols = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

/** How long the client may take to open the streams it announced; the kubelet's own figure. */
const streamsTimeoutMs = 30_000;

/** What `openSpdyCommand` needs besides the upgraded connection. */
export interface SpdyCommandOptions extends RemoteCommandOptions {
  /** The negotiated entry of `spdyCommandProtocols`. */
  readonly protocol: string;
}

/** Waits until the client has opened every stream it asked for; rejects when it does not. */
export async function openSpdyCommand(transport: Duplex, options: SpdyCommandOptions): Promise<RemoteCommand> {
  const wanted = wantedStreams(options);
  const streams = new Map<string, SpdyStream>();
  const { promise: opened, resolve, reject } = Promise.withResolvers<void>();
  const connection = new SpdyConnection(transport, {
    onStream: (stream) => {
      const type = stream.headers["streamtype"] ?? "";
      if (!wanted.includes(type) || streams.has(type))
        throw new Error(`unexpected stream type ${JSON.stringify(type)}`);
      stream.reply();
      streams.set(type, stream);
      if (streams.size === wanted.length) resolve();
    },
  });
  const timer = setTimeout(() => reject(new Error("client did not open its streams in time")), streamsTimeoutMs);
  void connection.closed.then(() => reject(new Error("client closed the connection")));
  try {
    await opened;
  } catch (error) {
    connection.close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
  return new SpdyCommand(connection, streams, options.protocol);
}

function wantedStreams({ stdin, stdout, stderr, tty, protocol }: SpdyCommandOptions): string[] {
  const resizes = tty && (protocol === "v4.channel.k8s.io" || protocol === "v3.channel.k8s.io");
  return [
    "error",
    ...(stdin ? ["stdin"] : []),
    ...(stdout ? ["stdout"] : []),
    ...(stderr && !tty ? ["stderr"] : []),
    ...(resizes ? ["resize"] : []),
  ];
}

class SpdyCommand implements RemoteCommand {
  readonly stdin: Readable | undefined;
  readonly stdout: Writable | undefined;
  readonly stderr: Writable | undefined;
  readonly signal: AbortSignal;
  readonly #connection: SpdyConnection;
  readonly #error: SpdyStream | undefined;
  readonly #protocol: string;
  readonly #resizes = new ResizeFeed();

  constructor(connection: SpdyConnection, streams: ReadonlyMap<string, SpdyStream>, protocol: string) {
    this.#connection = connection;
    this.#protocol = protocol;
    this.stdin = streams.get("stdin");
    this.stdout = streams.get("stdout");
    this.stderr = streams.get("stderr");
    this.#error = streams.get("error");
    // The kubelet reads one JSON value after another; clients send each in a write of its own.
    streams.get("resize")?.on("data", (message: Buffer) => this.#resizes.take(message));
    const gone = new AbortController();
    this.signal = gone.signal;
    void connection.closed.then(() => gone.abort(new Error("client closed the connection")));
  }

  onResize(listener: (size: TerminalSize) => void): void {
    this.#resizes.listen(listener);
  }

  async finish(outcome: CommandOutcome): Promise<void> {
    await Promise.all([endStream(this.stdout), endStream(this.stderr)]);
    const text = statusText(outcome, this.#protocol);
    if (text !== "") this.#error?.write(text);
    await endStream(this.#error);
    this.#connection.close();
  }

  cut(): void {
    this.#connection.cut();
  }
}

/** Before v4 the error stream carried a bare message, and nothing on success. */
function statusText(outcome: CommandOutcome, protocol: string): string {
  const status = outcomeStatus(outcome);
  if (protocol === "v4.channel.k8s.io") return JSON.stringify(status);
  return typeof status["message"] === "string" ? status["message"] : "";
}

async function endStream(stream: Writable | undefined): Promise<void> {
  if (stream === undefined || stream.destroyed || stream.writableFinished) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, drainTimeoutMs);
    stream.once("close", () => {
      clearTimeout(timer);
      resolve();
    });
    stream.end(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
