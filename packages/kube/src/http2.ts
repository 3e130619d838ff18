import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from "node:http2";
import type { TLSSocket } from "node:tls";
import type { Credentials } from "./credentials.ts";
import type { HttpCarrier } from "./http-carrier.ts";
import { headersOf } from "./http1.ts";
import { connectTls } from "./tls-connection.ts";
import type { KubeRequest, KubeResponse } from "./transport.ts";

/** As in client-go: after this long without a frame the connection is asked whether it still lives ... */
const idleMs = 30_000;

/** ... and given this long to answer. */
const pingTimeoutMs = 15_000;

/**
 * What a server may send ahead of us on one stream, and on all of them. The protocol's own 64 KiB are for all watches
 * and answers together: a few objects of a watch stop everything else until we have read them, and an API server ends
 * watches that do not drain.
 */
const streamWindowBytes = 1024 * 1024;
const sessionWindowBytes = 16 * 1024 * 1024;

/** HTTP/2: one connection for everything, replaced when it ends. */
export class Http2 implements HttpCarrier {
  readonly #credentials: Credentials;
  #session: Promise<ClientHttp2Session> | undefined;
  /** The session that `#session` resolves to, to tell it from one that is on its way out. */
  #current: ClientHttp2Session | undefined;
  #open = 0;
  #closed = false;

  constructor(credentials: Credentials, socket: TLSSocket) {
    this.#credentials = credentials;
    this.#session = Promise.resolve(this.#begin(socket));
  }

  async request(request: KubeRequest): Promise<KubeResponse> {
    const session = await this.#liveSession();
    request.signal?.throwIfAborted();
    const stream = session.request(
      { ...withoutConnectionHeaders(request.headers), ":method": request.method, ":path": request.path },
      { endStream: request.body === undefined },
    );
    this.#count(session, stream);
    return new Promise((resolve, reject) => {
      const onAbort = (): void => void stream.destroy(request.signal?.reason as Error);
      request.signal?.addEventListener("abort", onAbort, { once: true });
      stream.once("close", () => request.signal?.removeEventListener("abort", onAbort));
      stream.once("error", (error) => reject(request.signal?.aborted === true ? request.signal.reason : error));
      // A session that ends takes streams that were not answered along without an error of their own.
      stream.once("close", () => reject(new Error("connection closed before the answer")));
      stream.once("response", (headers: IncomingHttpHeaders & { ":status"?: number }) => {
        resolve({ status: headers[":status"] ?? 0, headers: headersOf(headers), body: bodyOf(stream) });
      });
      if (request.body !== undefined) stream.end(request.body);
    });
  }

  close(): void {
    this.#closed = true;
    void this.#session?.then(
      (session) => session.destroy(),
      () => undefined,
    );
  }

  async #liveSession(): Promise<ClientHttp2Session> {
    const session = await (this.#session ??= this.#connect());
    if (!session.closed && !session.destroyed) return session;
    // It ended between two requests, and its event is still on the way.
    this.#drop(session);
    return (this.#session ??= this.#connect());
  }

  #drop(session: ClientHttp2Session): void {
    if (this.#current === session) this.#session = undefined;
  }

  async #connect(): Promise<ClientHttp2Session> {
    try {
      if (this.#closed) throw new Error("transport is closed");
      return this.#begin(await connectTls(this.#credentials, ["h2"]));
    } catch (error) {
      this.#session = undefined;
      throw error;
    }
  }

  #begin(socket: TLSSocket): ClientHttp2Session {
    // Loaded on first use: most commands meet a server that they speak HTTP/1.1 to, or none at all.
    const { connect } = process.getBuiltinModule("node:http2");
    const settings = { initialWindowSize: streamWindowBytes };
    const session = connect(this.#credentials.server, { createConnection: () => socket, settings });
    session.once("connect", () => session.setLocalWindowSize(sessionWindowBytes));
    const drop = (): void => this.#drop(session);
    this.#current = session;
    session.once("close", drop);
    session.once("goaway", drop);
    // The streams fail by themselves; without a listener the process would.
    session.on("error", drop);
    session.setTimeout(idleMs, () => this.#probe(session));
    session.unref();
    return session;
  }

  #probe(session: ClientHttp2Session): void {
    if (this.#open === 0 || session.destroyed) return;
    const timer = setTimeout(() => session.destroy(new Error("connection does not answer")), pingTimeoutMs);
    timer.unref();
    session.ping(() => clearTimeout(timer));
  }

  #count(session: ClientHttp2Session, stream: ClientHttp2Stream): void {
    this.#open += 1;
    session.ref();
    stream.once("close", () => {
      this.#open -= 1;
      if (this.#open === 0) session.unref();
    });
  }
}

/** Bytes kept for a reader that is slow, about a page of a list; beyond it the server is made to wait. */
const bodyBytesMax = 1024 * 1024;

/**
 * The body, read from now on: Node closes a stream whose answer is complete even before its body is read, and what
 * came is lost. Cancelled from either end. Bound: `bodyBytesMax` and what one frame adds.
 */
function bodyOf(stream: ClientHttp2Stream): AsyncIterable<Uint8Array> {
  let chunks: Uint8Array[] = [];
  let bytes = 0;
  let end: "open" | "complete" | Error = "open";
  let wake: (() => void) | undefined;
  const finish = (how: "complete" | Error): void => {
    if (end === "open") end = how;
    wake?.();
  };
  stream.on("data", (chunk: Uint8Array) => {
    chunks.push(chunk);
    bytes += chunk.byteLength;
    if (bytes > bodyBytesMax) stream.pause();
    wake?.();
  });
  stream.once("end", () => finish("complete"));
  stream.on("error", finish);
  stream.once("close", () => finish(new Error("connection closed inside the answer")));
  return {
    async *[Symbol.asyncIterator]() {
      try {
        for (;;) {
          const taken = chunks;
          chunks = [];
          bytes = 0;
          if (stream.isPaused()) stream.resume();
          yield* taken;
          if (chunks.length > 0) continue;
          if (end === "complete") return;
          if (end !== "open") throw end;
          await new Promise<void>((resolve) => (wake = resolve));
        }
      } finally {
        if (end === "open") stream.destroy();
      }
    },
  };
}

/** HTTP/2 refuses headers that speak of the connection. */
function withoutConnectionHeaders(headers: Readonly<Record<string, string>> = {}): Record<string, string> {
  const { connection: _connection, upgrade: _upgrade, host: _host, ...rest } = headers;
  return rest;
}
