import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import type { RouterWorld } from "./router-world.ts";

/** A request as a sandbox saw it. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: http.IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: string;
}

/** An HTTP server in the place of a sandbox; closed with the world. */
export async function openUpstream(
  world: RouterWorld,
  at: { readonly address: string; readonly port: number },
  handle: http.RequestListener,
): Promise<http.Server> {
  const server = http.createServer({ keepAliveTimeout: 60_000 }, handle);
  server.listen(at.port, at.address);
  await once(server, "listening");
  world.onClose(() => closeServer(server));
  return server;
}

/** A server that answers everything with what it saw. */
export function echo(request: http.IncomingMessage, response: http.ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const { method = "", url = "", headers, rawHeaders } = request;
    const seen: Seen = { method, url, headers, rawHeaders, body: Buffer.concat(chunks).toString() };
    const text = JSON.stringify(seen);
    response.writeHead(200, { "Content-Type": "application/json", "Content-Length": String(Buffer.byteLength(text)) });
    response.end(text);
  });
}

/** A TCP server in the place of a sandbox, for what no well-behaved server sends. */
export async function openRawUpstream(
  world: RouterWorld,
  at: { readonly address: string; readonly port: number },
  onConnection: (socket: net.Socket) => void,
): Promise<net.Server> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.once("close", () => sockets.delete(socket));
    onConnection(socket);
  });
  server.listen(at.port, at.address);
  await once(server, "listening");
  world.onClose(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return server;
}

async function closeServer(server: http.Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
