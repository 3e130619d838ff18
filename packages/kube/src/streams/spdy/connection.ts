import { Duplex } from "node:stream";
import { pausedPingMs } from "../paused-input.ts";
import { controlFrame, dataFrame, FrameParser, flagFin, frameType, type RawFrame, rstStatus, words } from "./frame.ts";
import { HeaderReader, HeaderWriter, type SpdyHeaders } from "./header-block.ts";

/** Payload of one data frame we send; small enough to interleave streams fairly. */
const dataFrameBytesMax = 32 * 1024;

/**
 * Bytes a stream may hold unread before the whole connection stops reading. Kubernetes peers use no SPDY flow control,
 * so the transport's own back-pressure is the only brake there is.
 */
const streamBufferBytesMax = 256 * 1024;

/** Replies to pings and refusals that may wait for the peer. Full: nothing more is read from it until it has read them. */
const replyBytesMax = 64 * 1024;

/** Streams one peer may have open at once; kubectl opens two per forwarded connection. */
const streamsMax = 1000;

/** What a peer gets to read the last bytes of a connection. */
const closeMsMax = 10_000;

/** One bidirectional SPDY stream. Ending the writable half sends FIN; destroying it resets the stream. */
export class SpdyStream extends Duplex {
  readonly id: number;
  readonly headers: SpdyHeaders;
  readonly #connection: SpdyConnection;
  #waiting = false;
  #peerClosed = false;

  constructor(connection: SpdyConnection, id: number, headers: SpdyHeaders) {
    super({ allowHalfOpen: true, readableHighWaterMark: streamBufferBytesMax });
    this.#connection = connection;
    this.id = id;
    this.headers = headers;
  }

  /** Accepts the stream; the peer waits for this before it uses it. */
  reply(headers: SpdyHeaders = {}): void {
    this.#connection.sendReply(this.id, headers);
  }

  /** Takes a piece off the wire; false asks the connection to stop reading until `_read`. */
  receive(body: Buffer, fin: boolean): boolean {
    if (this.destroyed || this.#peerClosed) return true;
    let wantsMore = true;
    if (body.length > 0) wantsMore = this.push(body);
    if (fin) {
      this.#peerClosed = true;
      this.push(null);
    }
    this.#waiting = !wantsMore;
    return wantsMore;
  }

  /** The peer reset this stream, or the connection is gone. */
  abort(error?: Error): void {
    this.#peerClosed = true;
    this.#connection.forget(this.id);
    this.destroy(error);
  }

  override _read(): void {
    if (!this.#waiting) return;
    this.#waiting = false;
    this.#connection.resumeReading(this.id);
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#connection.sendData(this.id, chunk, false, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#connection.sendData(this.id, Buffer.alloc(0), true, done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#connection.streamDestroyed(this.id, this.#peerClosed && this.writableFinished);
    done(error);
  }
}

/** What the user of a connection decides: which streams to take. Throwing refuses the stream. */
export interface SpdyConnectionOptions {
  readonly onStream: (stream: SpdyStream) => void;
  /** How often the peer is written to while nothing is read from it. Default `pausedPingMs`. */
  readonly pingMs?: number;
}

/** The server side of one SPDY/3.1 connection over any duplex byte stream. */
export class SpdyConnection {
  readonly closed: Promise<void>;
  readonly #transport: Duplex;
  readonly #onStream: (stream: SpdyStream) => void;
  readonly #streams = new Map<number, SpdyStream>();
  readonly #blocked = new Set<number>();
  readonly #parser = new FrameParser();
  readonly #headerReader = new HeaderReader();
  readonly #headerWriter = new HeaderWriter();
  readonly #pingMs: number;
  #lastStreamId = 0;
  #lastPingId = 0;
  #replyBytes = 0;
  #ended = false;

  constructor(transport: Duplex, { onStream, pingMs = pausedPingMs }: SpdyConnectionOptions) {
    this.#transport = transport;
    this.#onStream = onStream;
    this.#pingMs = pingMs;
    this.closed = this.#run();
  }

  get streamCount(): number {
    return this.#streams.size;
  }

  /** Bytes of replies that the peer has not read. */
  get replyBytes(): number {
    return this.#replyBytes;
  }

  sendReply(streamId: number, headers: SpdyHeaders): void {
    this.#write(
      controlFrame(frameType.synReply, 0, Buffer.concat([words(streamId), this.#headerWriter.write(headers)])),
    );
  }

  sendData(streamId: number, chunk: Buffer, fin: boolean, done: (error?: Error | null) => void): void {
    if (this.#ended) return done(new Error("SPDY connection is closed"));
    const frames: Buffer[] = [];
    for (let at = 0; at < chunk.length || (at === 0 && fin); at += dataFrameBytesMax) {
      const piece = chunk.subarray(at, at + dataFrameBytesMax);
      frames.push(dataFrame(streamId, piece, fin && at + dataFrameBytesMax >= chunk.length));
    }
    this.#transport.write(Buffer.concat(frames), (error) => done(error));
  }

  streamDestroyed(streamId: number, clean: boolean): void {
    if (this.#streams.delete(streamId) && !clean) {
      this.#write(controlFrame(frameType.rstStream, 0, words(streamId, rstStatus.cancel)));
    }
    this.resumeReading(streamId);
  }

  forget(streamId: number): void {
    this.#streams.delete(streamId);
  }

  resumeReading(streamId: number): void {
    this.#blocked.delete(streamId);
    if (this.#blocked.size === 0) this.#transport.emit("spdy-resume");
  }

  /** Says goodbye and closes the transport; open streams end with an error. */
  close(): void {
    if (this.#ended) return;
    this.#write(controlFrame(frameType.goAway, 0, words(this.#lastStreamId, 0)));
    this.#ended = true;
    this.#transport.end();
    // A peer that does not read would keep the connection open for ever.
    setTimeout(() => this.#transport.destroy(), closeMsMax).unref();
  }

  /** Ends the connection at once, unsent bytes and all. */
  cut(): void {
    this.#transport.destroy();
  }

  async #run(): Promise<void> {
    let failure: Error | undefined;
    try {
      for await (const chunk of this.#transport as AsyncIterable<Buffer>) {
        for (const frame of this.#parser.push(chunk)) await this.#take(frame);
        await this.#unblocked();
      }
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
    }
    this.#ended = true;
    this.#headerReader.close();
    for (const stream of this.#streams.values()) stream.abort(failure);
    this.#transport.destroy();
  }

  /**
   * Waits until streams have taken what they hold, and the peer what was said to it. A peer that is not read from does not show
   * that it has gone; one that is written to does, so it is pinged meanwhile.
   */
  async #unblocked(): Promise<void> {
    if (!this.#isBlocked()) return;
    const pinging = setInterval(() => this.#pingPeer(), this.#pingMs);
    pinging.unref();
    while (this.#isBlocked()) {
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          this.#transport.off("spdy-resume", wake).off("close", wake);
          resolve();
        };
        this.#transport.on("spdy-resume", wake).on("close", wake);
      });
    }
    clearInterval(pinging);
  }

  #isBlocked(): boolean {
    return (this.#blocked.size > 0 || this.#replyBytes > replyBytesMax) && !this.#transport.destroyed;
  }

  /** Pings of a server have even numbers. One at a time: a peer that does not read is not sent another. */
  #pingPeer(): void {
    if (this.#replyBytes > 0) return;
    this.#lastPingId += 2;
    this.#write(controlFrame(frameType.ping, 0, words(this.#lastPingId)));
  }

  async #take(frame: RawFrame): Promise<void> {
    if (frame.kind === "data") {
      const stream = this.#streams.get(frame.streamId);
      if (stream !== undefined && !stream.receive(frame.body, frame.fin)) this.#blocked.add(frame.streamId);
      return;
    }
    switch (frame.type) {
      case frameType.synStream:
        return this.#takeSynStream(frame.body, frame.flags);
      case frameType.headers:
        // Trailing headers change nothing for us, but they advance the shared decompressor.
        await this.#headerReader.read(frame.body.subarray(4));
        return;
      case frameType.rstStream:
        this.#streams.get(frame.body.readUInt32BE(0))?.abort();
        return;
      case frameType.ping:
        // Even numbers are answers to ours.
        if (frame.body.length === 4 && frame.body.readUInt32BE(0) % 2 === 0) return;
        this.#write(controlFrame(frameType.ping, 0, frame.body));
        return;
      default:
        // SETTINGS, WINDOW_UPDATE and GOAWAY ask nothing of a server without flow control.
        return;
    }
  }

  async #takeSynStream(body: Buffer, flags: number): Promise<void> {
    const streamId = body.readUInt32BE(0) & 0x7fffffff;
    const headers = await this.#headerReader.read(body.subarray(10));
    this.#lastStreamId = streamId;
    if (this.#streams.has(streamId) || this.#streams.size >= streamsMax) return this.#refuse(streamId);
    const stream = new SpdyStream(this, streamId, headers);
    stream.on("error", () => {
      // The stream's user sees the error through its own listener or pipeline; the connection lives on.
    });
    this.#streams.set(streamId, stream);
    try {
      this.#onStream(stream);
    } catch {
      this.#streams.delete(streamId);
      return this.#refuse(streamId);
    }
    if ((flags & flagFin) !== 0) stream.receive(Buffer.alloc(0), true);
  }

  #refuse(streamId: number): void {
    this.#write(controlFrame(frameType.rstStream, 0, words(streamId, rstStatus.refusedStream)));
  }

  #write(frame: Buffer): void {
    if (this.#ended || !this.#transport.writable) return;
    this.#replyBytes += frame.length;
    this.#transport.write(frame, () => {
      this.#replyBytes -= frame.length;
      if (this.#replyBytes <= replyBytesMax) this.#transport.emit("spdy-resume");
    });
  }
}
