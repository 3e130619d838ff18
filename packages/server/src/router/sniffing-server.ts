import http, { type IncomingMessage, type ServerResponse } from "node:http";
import http2 from "node:http2";
import net from "node:net";
import type { Duplex } from "node:stream";
import type { SecureContextOptions, TLSSocket } from "node:tls";
import { endWhenHalfClosed, endWhenSilent, pingEveryMsDefault } from "@agent-sandbox/kube";

/** What a listener calls. Requests of both versions look alike; `httpVersionMajor` tells them apart. */
export interface ServerHandlers {
  readonly onRequest: (request: IncomingMessage, response: ServerResponse, protocol: "http" | "https") => void;
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, head: Buffer, protocol: "http" | "https") => void;
}

/** Certificates of a listener; client certificates are asked for, and believed only where they verify against `ca`. */
export interface ServerTls extends Pick<SecureContextOptions, "cert" | "key" | "ca"> {
  readonly clientCertificate: "off" | "optional" | "required";
}

/** HTTP/1.1 and HTTP/2, in clear text and over TLS, on one port. */
export interface SniffingServer {
  readonly server: net.Server;
  /** Later handshakes use these certificates. */
  setTls(tls: ServerTls): void;
  /** Stops accepting, lets open exchanges end, and closes idle connections. */
  drain(): void;
  /** Cuts what is left. */
  destroy(): void;
}

const http2Preface = Buffer.from("PRI * HTTP/2");
/** The first byte of a TLS handshake; no HTTP method begins with it. */
const tlsHandshake = 0x16;

// A client has this long to send its headers; slow bodies are welcome.
const headersTimeoutMs = 10_000;
const keepAliveTimeoutMs = 120_000;
const headerBytesMax = 64 * 1024;
/** A client that has sent nothing for this long is asked by the kernel whether it is there, then every second; ten silent answers end it. */
const keepAliveAfterMs = 30_000;
/** While draining; short against any drain limit. */
const reapEveryMs = 50;

const http1Options = {
  keepAliveTimeout: keepAliveTimeoutMs,
  headersTimeout: headersTimeoutMs,
  requestTimeout: 0,
  maxHeaderSize: headerBytesMax,
  noDelay: true,
};

/** What a listener speaks. */
export interface SniffingOptions {
  /** Absent: a TLS handshake is refused. */
  readonly tls?: ServerTls;
  /** Clear text is refused. */
  readonly tlsOnly?: boolean;
  /** How often a client of HTTP/2 is asked whether it is there. Default 7.5 s. */
  readonly pingEveryMs?: number;
}

/** Makes a server that tells the protocols apart by a connection's first bytes. */
export function createSniffingServer(
  handlers: ServerHandlers,
  { tls, tlsOnly = false, pingEveryMs = pingEveryMsDefault }: SniffingOptions,
): SniffingServer {
  const http1 = http.createServer(http1Options);
  const http2Server = http2.createServer();
  const secure = tls === undefined ? undefined : createSecureServer(tls);
  attach(http1, "http", handlers);
  attach(http2Server, "http", handlers);
  if (secure !== undefined) attach(secure, "https", handlers);

  const sockets = new Set<net.Socket>();
  const sessions = new Set<http2.ServerHttp2Session>();
  for (const server of [http2Server, ...(secure === undefined ? [] : [secure])]) {
    server.on("session", (session: http2.ServerHttp2Session) => {
      sessions.add(session);
      session.once("close", () => sessions.delete(session));
      endWhenHalfClosed(session);
      endWhenSilent(session, pingEveryMs);
    });
  }
  const keepAlive = { keepAlive: true, keepAliveInitialDelay: keepAliveAfterMs };
  const server = net.createServer({ noDelay: true, allowHalfOpen: true, ...keepAlive }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.once("readable", () => hand(socket, { http1, http2Server, secure, tlsOnly }));
  });
  return {
    server,
    setTls: (next) => secure?.setSecureContext(next),
    drain: () => {
      // A connection becomes idle when its exchange ends; a client that kept it open would keep the server from closing.
      const reaping = setInterval(() => closeIdle(http1, secure), reapEveryMs);
      server.close(() => clearInterval(reaping));
      closeIdle(http1, secure);
      for (const session of sessions) session.close();
    },
    destroy: () => {
      for (const socket of sockets) socket.destroy();
    },
  };
}

function closeIdle(...servers: (http.Server | http2.Http2SecureServer | undefined)[]): void {
  for (const server of servers) (server as Partial<http.Server> | undefined)?.closeIdleConnections?.();
}

function createSecureServer({ cert, key, ca, clientCertificate }: ServerTls): http2.Http2SecureServer {
  return http2.createSecureServer({
    ...http1Options,
    allowHTTP1: true,
    minVersion: "TLSv1.2",
    requestCert: clientCertificate !== "off",
    // An unverified certificate counts as none; a request that needs one is refused by the gate, with a readable answer.
    rejectUnauthorized: clientCertificate === "required",
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(ca !== undefined && { ca }),
  });
}

function attach(
  server: http.Server | http2.Http2Server | http2.Http2SecureServer,
  protocol: "http" | "https",
  { onRequest, onUpgrade }: ServerHandlers,
): void {
  const serve = (request: IncomingMessage, response: ServerResponse): void => onRequest(request, response, protocol);
  // The compatibility objects of HTTP/2 have all that the router uses of HTTP/1.1's.
  const emitter = server as http.Server;
  emitter.on("request", serve);
  // The client's body must not be asked for before the sandbox asks for it.
  emitter.on("checkContinue", serve);
  emitter.on("upgrade", (request, socket, head) => onUpgrade(request, socket, head, protocol));
}

interface Servers {
  readonly http1: http.Server;
  readonly http2Server: http2.Http2Server;
  readonly secure: http2.Http2SecureServer | undefined;
  readonly tlsOnly: boolean;
}

function hand(socket: net.Socket, { http1, http2Server, secure, tlsOnly }: Servers): void {
  const first = socket.read() as Buffer | null;
  if (first === null) return void socket.destroy();
  socket.unshift(first);
  if (first[0] === tlsHandshake) {
    if (secure === undefined) socket.destroy();
    else secure.emit("connection", socket);
    return;
  }
  if (tlsOnly) return void socket.destroy();
  const isHttp2 = first.subarray(0, http2Preface.length).equals(http2Preface);
  (isHttp2 ? http2Server : http1).emit("connection", socket);
  // The parser attached itself to a paused stream: what was read already must reach it.
  if (!isHttp2) socket.resume();
}

/** The user that a verified client certificate names: CN, and O as groups. */
export function certificateUser(request: IncomingMessage): { username: string; groups: string[] } | undefined {
  const socket = request.socket as Partial<TLSSocket>;
  if (socket.authorized !== true) return undefined;
  const subject = socket.getPeerCertificate?.().subject as Partial<Record<"CN" | "O", string | string[]>> | undefined;
  const username = [subject?.["CN"] ?? []].flat().at(-1);
  if (username === undefined || username === "") return undefined;
  return { username, groups: [...[subject?.O ?? []].flat(), "system:authenticated"] };
}
