import http from "node:http";
import net from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { type PortDialer, parsePort, servePortForward, type UpgradeOffer, UpgradeRefused } from "@agent-sandbox/kube";
import type { User } from "./access/caller.ts";
import { readTunnelUser } from "./tunnel-preamble.ts";

/** The port of the virtual Pod; the Service that published clients look for points to it. */
const tunnelPort = 8080;

/**
 * The door behind the router's virtual Pod. The API server connects, says whose tunnel it is, and passes on the client's
 * port-forward request; every stream in it becomes a connection to the router with that user's identity.
 */
export function createTunnelDoor(onConnection: (connection: Duplex, user: User) => void): net.Server {
  const server = http.createServer((_request, response) => response.writeHead(400).end("Upgrade request required\n"));
  const users = new WeakMap<Duplex, User>();
  server.on("upgrade", (request, socket: Duplex, head) => {
    socket.on("error", () => socket.destroy());
    const user = users.get(socket);
    if (user === undefined) return void socket.destroy();
    const dial = (port: number): Promise<Duplex> => openStream(port, (connection) => onConnection(connection, user));
    serve({ request, socket, head }, dial).catch((error: unknown) => refuse(socket, error));
  });
  return net.createServer({ allowHalfOpen: true }, (connection) => {
    connection.on("error", () => connection.destroy());
    readTunnelUser(connection).then(
      (user) => {
        users.set(connection, user);
        server.emit("connection", connection);
      },
      () => connection.destroy(),
    );
  });
}

async function serve(offer: Omit<UpgradeOffer, "protocols">, dial: PortDialer): Promise<void> {
  const { searchParams } = new URL(offer.request.url ?? "/", "http://router");
  const isServed = await servePortForward(offer, searchParams.getAll("port").map(parsePort), dial);
  if (!isServed) throw new UpgradeRefused(400, "port-forward needs SPDY/3.1 or a WebSocket");
}

async function openStream(port: number, onConnection: (connection: Duplex) => void): Promise<Duplex> {
  if (port !== tunnelPort) throw new Error(`the router listens on ${tunnelPort} only`);
  const [outside, inside] = duplexPair();
  onConnection(inside);
  return outside;
}

function refuse(socket: Duplex, error: unknown): void {
  if (!socket.writable) return;
  const status = error instanceof UpgradeRefused ? error.status : 400;
  const body = `${error instanceof Error ? error.message : String(error)}\n`;
  socket.end(
    `HTTP/1.1 ${status} Refused\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}
