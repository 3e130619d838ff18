import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";

/** One request that wants another protocol, and the protocols that are served, the preferred one first. */
export interface UpgradeOffer {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  readonly protocols: readonly string[];
}

/** Nothing that the client offered is served; thrown before anything was answered. */
export class UpgradeRefused extends Error {
  override readonly name = "UpgradeRefused";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Bytes of one WebSocket message; clients cut their input to 32 KiB. */
const messageBytesMax = 2 * 1024 * 1024;

/** Answers to pings that may wait for a client; one that does not read gets no more of them. */
const pongBacklogBytesMax = 64 * 1024;

/** Answers a WebSocket handshake with the preferred of the offered sub-protocols. */
export function acceptWebsocket({ request, socket, head, protocols }: UpgradeOffer): Promise<WebSocket> {
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((text) => text.trim());
  const chosen = protocols.find((protocol) => offered.includes(protocol));
  if (chosen === undefined)
    throw new UpgradeRefused(400, `none of the offered protocols is served: ${offered.join(", ")}`);
  const server = new WebSocketServer({
    noServer: true,
    maxPayload: messageBytesMax,
    perMessageDeflate: false,
    autoPong: false,
    handleProtocols: () => chosen,
  });
  return new Promise((resolve) => {
    server.handleUpgrade(request, socket as Parameters<typeof server.handleUpgrade>[1], head, (websocket) => {
      websocket.on("error", () => websocket.terminate());
      websocket.on("ping", (payload) => {
        if (websocket.readyState === websocket.OPEN && websocket.bufferedAmount < pongBacklogBytesMax)
          websocket.pong(payload);
      });
      resolve(websocket);
    });
  });
}

/** Answers 101 with the chosen stream protocol; a client that offers none speaks the oldest. */
export function acceptSpdy({ request, socket, head, protocols }: UpgradeOffer): string {
  const offered = [request.headers["x-stream-protocol-version"] ?? []]
    .flat()
    .flatMap((text) => text.split(","))
    .map((text) => text.trim());
  const chosen = offered.length === 0 ? protocols.at(-1) : protocols.find((protocol) => offered.includes(protocol));
  if (chosen === undefined)
    throw new UpgradeRefused(
      403,
      `unable to negotiate protocol: client supports [${offered.join(" ")}], server supports [${protocols.join(" ")}]`,
    );
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ${chosen}\r\n\r\n`,
  );
  if (head.length > 0) socket.unshift(head);
  return chosen;
}
