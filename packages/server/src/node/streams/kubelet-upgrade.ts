import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { createWebSocketStream, type WebSocket, WebSocketServer } from "ws";
import type { CommandOutcome } from "./command-outcome.ts";
import { type KubeletBackend, KubeletError } from "./kubelet-backend.ts";
import type { KubeletRoute } from "./kubelet-routes.ts";
import {
  servePortForwardChannels,
  servePortForwardSpdy,
  spdyPortForwardProtocol,
  tunnelProtocol,
} from "./port-forward.ts";
import type { RemoteCommand } from "./remote-command.ts";
import { openSpdyCommand, spdyCommandProtocols } from "./spdy-command.ts";
import { commandProtocols, WebsocketCommand } from "./websocket-command.ts";

/** One request that wants another protocol, already admitted. */
export interface UpgradeQuestion {
  readonly route: KubeletRoute;
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  readonly backend: KubeletBackend;
}

/** Bytes of one WebSocket message; clients cut their input to 32 KiB. */
const messageBytesMax = 2 * 1024 * 1024;

const channelPortForwardProtocol = "v4.channel.k8s.io";

/** Switches protocols and serves the route until it ends; throws before switching when it cannot be served. */
export async function serveUpgrade(question: UpgradeQuestion): Promise<void> {
  const { route, request, backend } = question;
  const wanted = request.headers.upgrade?.toLowerCase();
  switch (route.kind) {
    case "exec":
    case "attach":
      backend.assertRunning(route.ref);
      if (wanted === "websocket") return serveCommandWebsocket(question, route);
      if (wanted === "spdy/3.1") return serveCommandSpdy(question, route);
      break;
    case "port-forward":
      if (wanted === "websocket") return servePortForwardWebsocket(question, route);
      if (wanted === "spdy/3.1") return servePortForward(question, route);
      break;
    default:
      break;
  }
  throw new KubeletError(400, `cannot upgrade to ${JSON.stringify(request.headers.upgrade)} here`);
}

type CommandRoute = Extract<KubeletRoute, { kind: "exec" | "attach" }>;
type PortForwardRoute = Extract<KubeletRoute, { kind: "port-forward" }>;

async function run(backend: KubeletBackend, route: CommandRoute, remote: RemoteCommand): Promise<void> {
  let outcome: CommandOutcome;
  try {
    outcome =
      route.kind === "exec"
        ? await backend.exec(route.ref, { command: route.command, tty: route.streams.tty }, remote)
        : await backend.attach(route.ref, remote);
  } catch (error) {
    if (remote.signal.aborted) return;
    outcome = { kind: "failed", message: error instanceof Error ? error.message : String(error) };
  }
  if (!remote.signal.aborted) await remote.finish(outcome);
}

async function serveCommandWebsocket(
  { request, socket, head, backend }: UpgradeQuestion,
  route: CommandRoute,
): Promise<void> {
  const websocket = await acceptWebsocket({ request, socket, head, protocols: commandProtocols });
  await run(backend, route, new WebsocketCommand(websocket, route.streams));
}

async function serveCommandSpdy(
  { request, socket, head, backend }: UpgradeQuestion,
  route: CommandRoute,
): Promise<void> {
  const protocol = acceptSpdy({ request, socket, head, protocols: spdyCommandProtocols });
  const remote = await openSpdyCommand(socket, { ...route.streams, protocol });
  await run(backend, route, remote);
}

async function servePortForward(
  { request, socket, head, backend }: UpgradeQuestion,
  route: PortForwardRoute,
): Promise<void> {
  acceptSpdy({ request, socket, head, protocols: [spdyPortForwardProtocol] });
  await servePortForwardSpdy(socket, (port, signal) => backend.dial(route, port, signal));
}

async function servePortForwardWebsocket(
  { request, socket, head, backend }: UpgradeQuestion,
  route: PortForwardRoute,
): Promise<void> {
  const websocket = await acceptWebsocket({
    request,
    socket,
    head,
    protocols: [tunnelProtocol, channelPortForwardProtocol],
  });
  if (websocket.protocol === tunnelProtocol) {
    return servePortForwardSpdy(createWebSocketStream(websocket), (port, signal) => backend.dial(route, port, signal));
  }
  return servePortForwardChannels(websocket, route.ports, (port, signal) => backend.dial(route, port, signal));
}

interface Accept {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  /** The preferred one first. */
  readonly protocols: readonly string[];
}

function acceptWebsocket({ request, socket, head, protocols }: Accept): Promise<WebSocket> {
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((text) => text.trim());
  const chosen = protocols.find((protocol) => offered.includes(protocol));
  if (chosen === undefined)
    throw new KubeletError(400, `none of the offered protocols is served: ${offered.join(", ")}`);
  const server = new WebSocketServer({
    noServer: true,
    maxPayload: messageBytesMax,
    perMessageDeflate: false,
    handleProtocols: () => chosen,
  });
  return new Promise((resolve) => {
    server.handleUpgrade(request, socket as Parameters<typeof server.handleUpgrade>[1], head, (websocket) => {
      websocket.on("error", () => websocket.terminate());
      resolve(websocket);
    });
  });
}

/** Answers 101 with the chosen stream protocol; a client that offers none speaks the oldest. */
function acceptSpdy({ request, socket, head, protocols }: Accept): string {
  const offered = [request.headers["x-stream-protocol-version"] ?? []]
    .flat()
    .flatMap((text) => text.split(","))
    .map((text) => text.trim());
  const chosen = offered.length === 0 ? protocols.at(-1) : protocols.find((protocol) => offered.includes(protocol));
  if (chosen === undefined)
    throw new KubeletError(
      403,
      `unable to negotiate protocol: client supports [${offered.join(" ")}], server supports [${protocols.join(" ")}]`,
    );
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ${chosen}\r\n\r\n`,
  );
  if (head.length > 0) socket.unshift(head);
  return chosen;
}
