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
  /** Aborts, with the error that the caller reads, when what the route leads into stands still and only its owner lets it go on. */
  readonly held: AbortSignal;
}

/** Switches protocols and serves the route until it ends; throws before switching when it cannot be served. */
export async function serveUpgrade(question: UpgradeQuestion): Promise<void> {
  const { route, request, socket, backend, held } = question;
  const wanted = request.headers.upgrade?.toLowerCase();
  switch (route.kind) {
    case "exec":
    case "attach":
      backend.assertRunning(route.ref);
      if (wanted === "websocket") return serveCommandWebsocket(question, route);
      if (wanted === "spdy/3.1") return serveCommandSpdy(question, route);
      break;
    case "port-forward":
      // The protocol has a word for a connection that failed, and none for a tunnel: it is ended.
      held.addEventListener("abort", () => socket.destroy(), { once: true });
      if (await servePortForward(question, route.ports, (port, signal) => backend.dial(route, port, signal))) return;
      break;
    default:
      break;
  }
  throw new KubeletError(400, `cannot upgrade to ${JSON.stringify(request.headers.upgrade)} here`);
}

type CommandRoute = Extract<KubeletRoute, { kind: "exec" | "attach" }>;

async function run(
  { backend, held }: Pick<UpgradeQuestion, "backend" | "held">,
  route: CommandRoute,
  remote: RemoteCommand,
): Promise<void> {
  let outcome: CommandOutcome;
  const command =
    route.kind === "exec"
      ? () => backend.exec(route.ref, { command: route.command, tty: route.streams.tty }, remote)
      : () => backend.attach(route.ref, remote);
  try {
    outcome = await unlessHeld(command(), held);
  } catch (error) {
    if (remote.signal.aborted) return;
    outcome = { kind: "failed", message: error instanceof Error ? error.message : String(error) };
  }
  if (!remote.signal.aborted) await remote.finish(outcome);
}

/** The outcome, or a rejection with the signal's reason. The command itself ends with the connection, as for a client who leaves, once its sandbox goes on. */
function unlessHeld(outcome: Promise<CommandOutcome>, held: AbortSignal): Promise<CommandOutcome> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(held.reason);
  held.addEventListener("abort", onAbort, { once: true });
  return Promise.race([outcome, promise]).finally(() => held.removeEventListener("abort", onAbort));
}

async function serveCommandWebsocket(question: UpgradeQuestion, route: CommandRoute): Promise<void> {
  const { request, socket, head } = question;
  const websocket = await acceptWebsocket({ request, socket, head, protocols: commandProtocols });
  await run(question, route, new WebsocketCommand(websocket, route.streams));
}

async function serveCommandSpdy(question: UpgradeQuestion, route: CommandRoute): Promise<void> {
  const { request, socket, head } = question;
  const protocol = acceptSpdy({ request, socket, head, protocols: spdyCommandProtocols });
  const remote = await openSpdyCommand(socket, { ...route.streams, protocol });
  await run(question, route, remote);
}
