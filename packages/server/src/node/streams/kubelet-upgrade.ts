import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { acceptSpdy, acceptWebsocket, servePortForward } from "@agent-sandbox/kube";
import type { CommandOutcome } from "./command-outcome.ts";
import { type KubeletBackend, KubeletError } from "./kubelet-backend.ts";
import type { KubeletRoute } from "./kubelet-routes.ts";
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
      if (await servePortForward(question, route.ports, (port, signal) => backend.dial(route, port, signal))) return;
      break;
    default:
      break;
  }
  throw new KubeletError(400, `cannot upgrade to ${JSON.stringify(request.headers.upgrade)} here`);
}

type CommandRoute = Extract<KubeletRoute, { kind: "exec" | "attach" }>;

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
