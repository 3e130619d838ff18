import {
  createServer as createHttp1,
  type Server as Http1Server,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import {
  createServer as createHttp2,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { createServer as createTls, type TLSSocket, type Server as TlsServer } from "node:tls";
import { endWhenSilent, pingEveryMsDefault, StreamWriter } from "@agent-sandbox/kube";
import { wireError } from "../pipeline/pipeline.ts";
import { answerError } from "../request/answer.ts";
import { type ApiResponse, isWholeBody, type RequestHandler } from "../request/api-request.ts";
import { plainHeaders, readRequest } from "./read-request.ts";
import { type CallerChecks, requestUser } from "./request-user.ts";
import { passUpgrade, type Served } from "./upgrade.ts";

/** Where and with what to listen. */
export interface ListenOptions {
  readonly host: string;
  /** Zero takes a free port. */
  readonly port: number;
  /** How often the client of an HTTP/2 connection is asked whether it is there; default 7.5 s. */
  readonly pingEveryMs?: number;
  readonly tls: {
    /** PEM, the chain. */
    readonly certificate: string;
    /** PEM. */
    readonly key: string;
    /** PEM of the authority that signs client certificates. */
    readonly clientCa: string;
  };
}

/** An open listener. */
export interface Listener {
  readonly host: string;
  readonly port: number;
  /** Presents another certificate from the next connection on. */
  renew(tls: ListenOptions["tls"]): void;
  /** Stops accepting, ends open connections and resolves when all are gone. */
  close(): Promise<void>;
}

/** Header bytes of one request, at most. */
const headerMaxBytes = 64 * 1024;

/** Streams of one HTTP/2 connection at once; client-go opens one per watch. */
const streamsPerConnectionMax = 1_000;

/** Idle HTTP/1.1 connections are kept this long; longer than clients keep theirs, so that they close first. */
const keepAliveMs = 120_000;

/** Serves the API over TLS: HTTP/2 where the client offers it, HTTP/1.1 otherwise. */
export async function openListener(
  server: RequestHandler,
  checks: CallerChecks,
  options: ListenOptions,
): Promise<Listener> {
  const http1 = createHttp1({ maxHeaderSize: headerMaxBytes, keepAliveTimeout: keepAliveMs, requestTimeout: 0 });
  const http2 = createHttp2({
    settings: {
      maxConcurrentStreams: streamsPerConnectionMax,
      maxHeaderListSize: headerMaxBytes,
      initialWindowSize: 1024 * 1024,
    },
    maxSessionMemory: 64,
  });
  http1.on("request", (request, response) => void serveHttp1({ server, checks }, request, response));
  http1.on("upgrade", (request, socket, head) => void passUpgrade({ server, checks }, { request, socket, head }));
  http2.on("stream", (stream, headers) => void serveHttp2({ server, checks }, stream, headers));
  http2.on("sessionError", () => undefined);
  const tls = createTls({
    ...secureContext(options.tls),
    ALPNProtocols: ["h2", "http/1.1"],
    requestCert: true,
    rejectUnauthorized: false,
    minVersion: "TLSv1.2",
  });
  const sockets = new Set<TLSSocket>();
  tls.on("secureConnection", (socket) => {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    if (socket.alpnProtocol !== "h2") http1.emit("connection", socket);
    else {
      // The session is made, and announced, while the connection is handed over.
      const pingEveryMs = options.pingEveryMs ?? pingEveryMsDefault;
      http2.once("session", (session) => endWhenSilent(session, pingEveryMs));
      http2.emit("connection", socket);
    }
  });
  tls.on("tlsClientError", (_error, socket) => socket.destroy());
  await listening(tls, options);
  return listenerOf({ tls, http1, http2, sockets });
}

function secureContext({ certificate, key, clientCa }: ListenOptions["tls"]): {
  cert: string;
  key: string;
  ca: string;
} {
  return { cert: certificate, key, ca: clientCa };
}

function listening(tls: TlsServer, { host, port }: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    tls.once("error", reject);
    tls.listen({ host, port }, () => {
      tls.off("error", reject);
      resolve();
    });
  });
}

interface Open {
  readonly tls: TlsServer;
  readonly http1: Http1Server;
  readonly http2: Http2Server;
  readonly sockets: ReadonlySet<TLSSocket>;
}

function listenerOf({ tls, http1, sockets }: Open): Listener {
  const { address, port } = tls.address() as AddressInfo;
  return {
    host: address,
    port,
    renew: (next) => tls.setSecureContext(secureContext(next)),
    async close() {
      http1.closeIdleConnections();
      const closed = new Promise<void>((resolve) => void tls.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

/** Why requests end early. One error for all of them: a stack trace per request costs more than answering one. */
const clientGone = new Error("the client closed the connection");

const answerCut = new Error("the answer could not be sent whole");

async function serveHttp1(
  { server, checks }: Served,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const stop = new AbortController();
  // A response that was sent whole closes too; there is nothing left to stop then.
  response.once("close", () => {
    if (!response.writableFinished) stop.abort(clientGone);
  });
  const answer = await answerTo(
    { server, checks },
    {
      socket: request.socket as TLSSocket,
      headers: request.headers,
      method: request.method ?? "GET",
      path: request.url ?? "/",
      read: () => readRequest(request),
      signal: stop.signal,
    },
  );
  // A body that was refused is not read to its end; the connection cannot be used again.
  if (!request.complete) response.setHeader("connection", "close");
  await writeAnswer(answer, {
    head: (headers) => void response.writeHead(answer.status, headers),
    flush: () => response.flushHeaders(),
    writer: () => new StreamWriter(response),
    end: (chunk) => void response.end(chunk),
    cut: () => void response.destroy(),
    isOpen: () => !response.destroyed,
  });
}

async function serveHttp2(
  { server, checks }: Served,
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
): Promise<void> {
  const stop = new AbortController();
  stream.once("close", () => {
    if (!stream.writableFinished) stop.abort(clientGone);
  });
  stream.on("error", () => stop.abort(clientGone));
  const answer = await answerTo(
    { server, checks },
    {
      socket: stream.session?.socket as TLSSocket,
      headers,
      method: headers[":method"] ?? "GET",
      path: headers[":path"] ?? "/",
      read: () => readRequest(stream),
      signal: stop.signal,
    },
  );
  if (stream.destroyed) return;
  await writeAnswer(answer, {
    head: (fields) => stream.respond({ ":status": answer.status, ...fields }),
    flush: () => undefined,
    writer: () => new StreamWriter(stream),
    end: (chunk) => void stream.end(chunk),
    // With an error, so that the stream is reset; `close` would end it as if it were whole.
    cut: () => void stream.destroy(answerCut),
    isOpen: () => !stream.destroyed,
  });
}

interface Incoming {
  readonly socket: TLSSocket;
  readonly headers: IncomingHttpHeaders;
  readonly method: string;
  readonly path: string;
  readonly read: () => Promise<Uint8Array>;
  readonly signal: AbortSignal;
}

async function answerTo({ server, checks }: Served, incoming: Incoming): Promise<ApiResponse> {
  try {
    const { method, path, headers, socket, signal } = incoming;
    const user = await requestUser(checks, socket, headers);
    const body = method === "GET" || method === "HEAD" ? undefined : await incoming.read();
    const sourceIp = socket.remoteAddress;
    return await server.handle({
      method,
      path,
      user,
      signal,
      headers: plainHeaders(headers),
      ...(body === undefined ? {} : { body }),
      ...(sourceIp === undefined ? {} : { sourceIp }),
    });
  } catch (error) {
    return answerError(wireError(error));
  }
}

const noBytes = new Uint8Array();

interface Sink {
  head(headers: Record<string, string | number>): void;
  /** Sends the head now: a client that watches waits for it, and the first event may be long in coming. */
  flush(): void;
  /** What a body of unknown length goes through. */
  writer(): StreamWriter;
  end(chunk?: Uint8Array): void;
  /** Ends the answer so that the client sees that it is not whole. */
  cut(): void;
  isOpen(): boolean;
}

/**
 * Writes an answer; a stream goes no faster than the client reads, and the store closes it when it falls behind. A body
 * that fails half way cuts the response, so that the client does not take the part for the whole.
 */
async function writeAnswer({ headers, body }: ApiResponse, sink: Sink): Promise<void> {
  if (!sink.isOpen()) return;
  if (isWholeBody(body)) {
    const bytes = body.length === 1 ? (body[0] ?? noBytes) : Buffer.concat(body);
    sink.head({ ...headers, "content-length": bytes.byteLength });
    sink.end(bytes);
    return;
  }
  sink.head({ ...headers });
  sink.flush();
  try {
    const writer = sink.writer();
    for await (const chunk of body) if (!(await writer.send(chunk))) break;
    sink.end();
  } catch {
    sink.cut();
  }
}
