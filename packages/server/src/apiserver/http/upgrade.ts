import type { IncomingMessage } from "node:http";
import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { wireError } from "../pipeline/pipeline.ts";
import { answerError } from "../request/answer.ts";
import { isWholeBody, type RequestHandler } from "../request/api-request.ts";
import { plainHeaders } from "./read-request.ts";
import { type CallerChecks, requestUser } from "./request-user.ts";

/** What every request needs. */
export interface Served {
  readonly server: RequestHandler;
  readonly checks: CallerChecks;
}

/** An HTTP/1.1 request that asks for another protocol. */
export interface UpgradeArrival {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  /** Bytes that came right behind the request. */
  readonly head: Buffer;
}

/** Joins the client's connection with the node's; the node answers the upgrade itself. */
export async function passUpgrade(
  { server, checks }: Served,
  { request, socket, head }: UpgradeArrival,
): Promise<void> {
  socket.on("error", () => socket.destroy());
  const stop = new AbortController();
  socket.once("close", () => stop.abort());
  try {
    const user = await requestUser(checks, request.socket as TLSSocket, request.headers);
    const node = await server.openUpgrade({
      method: request.method ?? "GET",
      path: request.url ?? "/",
      headers: plainHeaders(request.headers),
      user,
      signal: stop.signal,
    });
    if (head.byteLength > 0) node.write(head);
    join(socket, node);
  } catch (error) {
    refuse(socket, error);
  }
}

function join(client: Duplex, node: Duplex): void {
  node.on("error", () => client.destroy());
  node.once("close", () => client.end());
  client.once("close", () => node.destroy());
  client.pipe(node).pipe(client);
}

function refuse(socket: Duplex, error: unknown): void {
  const { status, headers, body } = answerError(wireError(error));
  const bytes = isWholeBody(body) ? Buffer.concat(body) : Buffer.alloc(0);
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Error"}`,
    "Connection: close",
    `Content-Length: ${bytes.byteLength}`,
  ];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  socket.end(Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`), bytes]));
}
