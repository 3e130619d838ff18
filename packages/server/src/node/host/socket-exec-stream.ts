import type { Duplex } from "node:stream";
import { PassThrough, Writable } from "node:stream";
import { holdBack, readerStallMsDefault, StreamWriter } from "@agent-sandbox/kube";
import { encodeFrame, FrameDecoder, frameKind } from "./exec-frame.ts";
import type { ExecStream } from "./exec-stream.ts";
import { HostError } from "./host-error.ts";

/** Output that is not read ends its exec: the stream that reads it for a client has given that client up long before. */
const unreadMsMax = 2 * readerStallMsDefault;

/** An exec over an upgraded connection to sandbox-host. */
export class SocketExecStream implements ExecStream {
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly stdin: Writable;
  readonly exit: Promise<number>;
  readonly #socket: Duplex;
  readonly #decoder = new FrameDecoder();
  readonly #exit = Promise.withResolvers<number>();
  readonly #toStdout: StreamWriter;
  readonly #toStderr: StreamWriter;
  #settled = false;

  constructor(socket: Duplex, head: Buffer) {
    this.#socket = socket;
    const options = { stallMs: unreadMsMax, onStall: () => void this.close() };
    this.#toStdout = new StreamWriter(this.stdout, options);
    this.#toStderr = new StreamWriter(this.stderr, options);
    this.exit = this.#exit.promise;
    // A caller that only reads output may never look at the exit; its rejection must not end the process.
    this.exit.catch(() => {});
    this.stdin = new Writable({
      write: (chunk: Buffer, _encoding, done) => this.#send(frameKind.stdin, chunk, done),
      final: (done) => this.#send(frameKind.stdinEnd, Buffer.alloc(0), done),
    });
    this.stdin.on("error", () => {});
    socket.on("data", (bytes: Buffer) => this.#receive(bytes));
    socket.on("error", (error) => this.#end(new HostError("unavailable", "exec stream was cut", { cause: error })));
    socket.on("close", () => this.#end(new HostError("unavailable", "exec stream was cut before the process ended")));
    if (head.length > 0) this.#receive(head);
  }

  /** Bytes of output that have not been read. */
  get unreadBytes(): number {
    return (
      this.#toStdout.bufferedBytes +
      this.#toStderr.bufferedBytes +
      this.stdout.readableLength +
      this.stderr.readableLength
    );
  }

  resize(size: { readonly columns: number; readonly rows: number }): void {
    // The size that counts comes when the process reads again.
    if (this.#socket.writableNeedDrain) return;
    this.#send(frameKind.resize, Buffer.from(JSON.stringify({ columns: size.columns, rows: size.rows })), () => {});
  }

  async close(): Promise<void> {
    this.#socket.destroy();
    this.#end(new HostError("unavailable", "exec stream was closed by its caller"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #send(kind: number, content: Uint8Array, done: (error?: Error | null) => void): void {
    if (this.#settled) {
      done();
      return;
    }
    this.#socket.write(encodeFrame(kind, content), done);
  }

  #receive(bytes: Buffer): void {
    try {
      for (const frame of this.#decoder.push(bytes)) this.#accept(frame.kind, frame.content);
      // A reader of either that falls behind stops the socket, and through it the process: nothing is buffered without bound.
      holdBack(this.#socket, this.#toStdout, this.#toStderr);
    } catch (error) {
      this.#socket.destroy();
      this.#end(new HostError("unavailable", "exec stream is not readable", { cause: error }));
    }
  }

  #accept(kind: number, content: Buffer): void {
    switch (kind) {
      case frameKind.stdout:
        this.#toStdout.write(content);
        break;
      case frameKind.stderr:
        this.#toStderr.write(content);
        break;
      case frameKind.exit: {
        const answer = JSON.parse(content.toString()) as { exitCode?: unknown } | null;
        if (typeof answer?.exitCode !== "number") throw new RangeError("exit frame without an exit code");
        this.#end(answer.exitCode);
        this.#socket.destroy();
        break;
      }
      default:
        throw new RangeError(`frame of unknown kind ${kind}`);
    }
  }

  #end(outcome: number | HostError): void {
    if (this.#settled) return;
    this.#settled = true;
    this.stdout.end();
    this.stderr.end();
    if (typeof outcome === "number") this.#exit.resolve(outcome);
    else this.#exit.reject(outcome);
  }
}
