import http, { type IncomingMessage, type ServerResponse } from "node:http";
import http2 from "node:http2";
import net from "node:net";
import type { Duplex } from "node:stream";

/** What a listener calls. Requests of both versions look alike; `httpVersionMajor` tells them apart. */
export interface ServerHandlers {
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

/** HTTP/1.1 and HTTP/2 with prior knowledge on one cleartext port. */
export interface SniffingServer {
  readonly server: net.Server;
  /** Stops accepting, lets open exchanges end, and closes idle connections. */
  drain(): void;
  /** Cuts what is left. */
  destroy(): void;
}

const http2Preface = Buffer.from("PRI * HTTP/2");

// A client has this long to send its headers; slow bodies are welcome.
const headersTimeoutMs = 10_000;
const keepAliveTimeoutMs = 120_000;
const headerBytesMax = 64 * 1024;

/** Makes a server that tells the two versions apart by a connection's first bytes. */
export function createSniffingServer(handlers: ServerHandlers): SniffingServer {
  const http1 = http.createServer(
    {
      keepAliveTimeout: keepAliveTimeoutMs,
      headersTimeout: headersTimeoutMs,
      requestTimeout: 0,
      maxHeaderSize: headerBytesMax,
      noDelay: true,
    },
    handlers.onRequest,
  );
  http1.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) =>
    handlers.onUpgrade(request, socket, head),
  );
  // The client's body must not be asked for before the sandbox asks for it.
  http1.on("checkContinue", handlers.onRequest);
  const http2Server = http2.createServer({ settings: { enableConnectProtocol: false } });
  // The compatibility objects of HTTP/2 have all that the router uses of HTTP/1.1's.
  http2Server.on("request", handlers.onRequest as unknown as Parameters<typeof http2Server.on>[1]);
  const sockets = new Set<net.Socket>();
  const sessions = new Set<http2.ServerHttp2Session>();
  http2Server.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
  });
  const server = net.createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.once("readable", () => {
      const first = socket.read() as Buffer | null;
      if (first === null) return void socket.destroy();
      socket.unshift(first);
      const isHttp2 = first.subarray(0, http2Preface.length).equals(http2Preface);
      (isHttp2 ? http2Server : http1).emit("connection", socket);
      // The parser attached itself to a paused stream: what was read already must reach it.
      if (!isHttp2) socket.resume();
    });
  });
  return {
    server,
    drain: () => {
      server.close();
      http1.closeIdleConnections();
      for (const session of sessions) session.close();
    },
    destroy: () => {
      for (const socket of sockets) socket.destroy();
    },
  };
}
