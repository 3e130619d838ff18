import { createHash, randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Transport } from "@agent-sandbox/kube/transport";
import { SandboxError } from "../errors/sandbox-error.ts";
import { encodeFrame, FrameReader, opcode } from "./websocket-frames.ts";

/** What a channel socket tells. */
export interface ChannelEvents {
  /** A message without its channel byte. */
  readonly onMessage: (channel: number, payload: Buffer) => void;
  /** The socket has ended; with an error where it did not end by agreement. */
  readonly onClose: (error: Error | undefined) => void;
}

/** Where to open one. */
export interface ChannelSocketOptions extends ChannelEvents {
  readonly transport: Transport;
  /** Path with query. */
  readonly path: string;
  /** Subprotocols, best first. */
  readonly protocols: readonly string[];
  readonly signal?: AbortSignal | undefined;
}

const acceptSuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/**
 * A WebSocket with Kubernetes channels: the first byte of each message names a stream. Written here because the
 * connection is opened by the API client, with its credentials, and what is left of the protocol is framing.
 */
export class ChannelSocket {
  /** The subprotocol that the server chose. */
  readonly protocol: string;
  readonly #stream: Duplex;
  readonly #events: ChannelEvents;
  readonly #reader = new FrameReader();
  #fragments: Buffer[] = [];
  #isClosed = false;

  private constructor(stream: Duplex, protocol: string, events: ChannelEvents) {
    this.#stream = stream;
    this.protocol = protocol;
    this.#events = events;
    stream.on("data", (chunk: Buffer) => this.#read(chunk));
    stream.once("error", (error) => this.#end(error));
    stream.once("close", () => this.#end(undefined));
  }

  /** Opens a socket; rejects with an ApiError when the server refuses. */
  static async open({
    transport,
    path,
    protocols,
    signal,
    onMessage,
    onClose,
  }: ChannelSocketOptions): Promise<ChannelSocket> {
    const key = randomBytes(16).toString("base64");
    const { headers, stream } = await transport.upgrade({
      method: "GET",
      path,
      protocol: "websocket",
      headers: {
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        "sec-websocket-protocol": protocols.join(", "),
      },
      ...(signal !== undefined && { signal }),
    });
    const expected = createHash("sha1")
      .update(key + acceptSuffix)
      .digest("base64");
    if (headers["sec-websocket-accept"] !== expected) {
      stream.destroy();
      throw new SandboxError("protocol-error", "the server's WebSocket answer does not match the request");
    }
    return new ChannelSocket(stream, headers["sec-websocket-protocol"] ?? "", { onMessage, onClose });
  }

  /** Sends one message; `done` is called when the connection has taken it. */
  send(channel: number, payload: Uint8Array, done?: (error?: Error | null) => void): void {
    const message = Buffer.allocUnsafe(payload.length + 1);
    message[0] = channel;
    message.set(payload, 1);
    this.#stream.write(encodeFrame(opcode.binary, message), done);
  }

  /** Stops reading until `resume`; the server feels it through TCP. */
  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  /** Ends the socket. */
  close(): void {
    if (this.#isClosed) return;
    this.#stream.end(encodeFrame(opcode.close, Buffer.from([0x03, 0xe8])));
    this.#end(undefined);
  }

  /** Whether the connection keeps the process alive. */
  setRef(isRef: boolean): void {
    const socket = this.#stream as Duplex & { ref?: () => void; unref?: () => void };
    if (isRef) socket.ref?.();
    else socket.unref?.();
  }

  #read(chunk: Buffer): void {
    try {
      for (const { opcode: code, isFinal, payload } of this.#reader.push(chunk)) this.#onFrame(code, isFinal, payload);
    } catch (error) {
      this.#stream.destroy(error as Error);
    }
  }

  #onFrame(code: number, isFinal: boolean, payload: Buffer): void {
    if (code === opcode.ping) return void this.#stream.write(encodeFrame(opcode.pong, payload));
    if (code === opcode.pong) return;
    if (code === opcode.close) return this.close();
    this.#fragments.push(payload);
    if (!isFinal) return;
    const message = this.#fragments.length === 1 ? payload : Buffer.concat(this.#fragments);
    this.#fragments = [];
    if (message.length > 0) this.#events.onMessage(message[0] ?? 0, message.subarray(1));
  }

  #end(error: Error | undefined): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#events.onClose(error);
  }
}
