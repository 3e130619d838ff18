import { PassThrough, type Readable, type Writable } from "node:stream";
import { channelWriter, pauseUntilDrained } from "@agent-sandbox/kube";
import type { WebSocket } from "ws";
import { type CommandOutcome, outcomeStatus } from "./command-outcome.ts";
import {
  drainTimeoutMs,
  type RemoteCommand,
  type RemoteCommandOptions,
  ResizeFeed,
  type TerminalSize,
} from "./remote-command.ts";

/** Sub-protocols for exec and attach over WebSocket, the preferred one first. */
export const commandProtocols = ["v5.channel.k8s.io", "v4.channel.k8s.io"] as const;

const channel = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4 } as const;

/** First byte of the v5 message that closes the channel named by the second byte. */
const closeChannel = 255;

/** Bytes of input that wait for the command before the client is not read from any more. */
const stdinBytesMax = 256 * 1024;

/** Exec and attach with one byte of channel number before every binary message. */
export class WebsocketCommand implements RemoteCommand {
  readonly stdin: Readable | undefined;
  readonly stdout: Writable | undefined;
  readonly stderr: Writable | undefined;
  readonly signal: AbortSignal;
  readonly #socket: WebSocket;
  readonly #stdin: PassThrough | undefined;
  readonly #resizes = new ResizeFeed();

  constructor(socket: WebSocket, options: RemoteCommandOptions) {
    this.#socket = socket;
    this.#stdin = options.stdin ? new PassThrough({ highWaterMark: stdinBytesMax }) : undefined;
    this.stdin = this.#stdin;
    this.stdout = options.stdout ? channelWriter(socket, channel.stdout) : undefined;
    this.stderr = options.stderr && !options.tty ? channelWriter(socket, channel.stderr) : undefined;
    const gone = new AbortController();
    this.signal = gone.signal;
    socket.on("message", (message: Buffer) => this.#take(message));
    socket.on("error", () => gone.abort(new Error("client connection failed")));
    socket.on("close", () => {
      this.#stdin?.end();
      gone.abort(new Error("client closed the connection"));
    });
  }

  onResize(listener: (size: TerminalSize) => void): void {
    this.#resizes.listen(listener);
  }

  async finish(outcome: CommandOutcome): Promise<void> {
    const status = Buffer.from(JSON.stringify(outcomeStatus(outcome)));
    // A client that does not read must not keep the connection, and what waits for it, open.
    const cutting = setTimeout(() => this.cut(), drainTimeoutMs);
    this.#socket.once("close", () => clearTimeout(cutting));
    await new Promise<void>((resolve) => {
      this.#socket.once("close", () => resolve());
      this.#socket.send(Buffer.concat([Buffer.from([channel.error]), status]), () => resolve());
    });
    this.#socket.close(1000);
  }

  cut(): void {
    this.#socket.terminate();
  }

  #take(message: Buffer): void {
    const [first] = message;
    if (first === channel.stdin) this.#takeStdin(message.subarray(1));
    else if (first === channel.resize) this.#resizes.take(message.subarray(1));
    else if (first === closeChannel && message[1] === channel.stdin) this.#stdin?.end();
  }

  #takeStdin(bytes: Buffer): void {
    const stdin = this.#stdin;
    if (stdin === undefined || stdin.writableEnded || bytes.length === 0) return;
    if (!stdin.write(bytes)) pauseUntilDrained(this.#socket, stdin);
  }
}
