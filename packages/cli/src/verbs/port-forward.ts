import { once } from "node:events";
import net from "node:net";
import { pipeline } from "node:stream/promises";
import { annotationKeys } from "@agent-sandbox/api/labels";
import { openPortForward } from "@agent-sandbox/sdk/tunnel/port-forward";
import { type Context, type EngineFlags, openEngine, required, type Verb } from "../context.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import { parsePort } from "./open.ts";

/** Makes ports of a sandbox reachable on this machine until it is interrupted. */
export const portForwardVerb: Verb<EngineFlags & { address: string }> = async (context, args, flags) => {
  const { address, ...engineFlags } = flags;
  const name = required(args, 0, "sandbox");
  const pairs = args.slice(1).map(parsePortPair);
  const sandbox = await findSandbox(name, engineFlags, context);
  const engine = await openEngine(engineFlags);
  const dial = async (port: number): Promise<NodeJS.ReadWriteStream> => {
    // Asked anew for each connection: a sandbox that slept meanwhile has another Pod.
    const object = await sandbox.object();
    const pod = object.metadata.annotations?.[annotationKeys.podName] ?? sandbox.name;
    return openPortForward({ transport: engine.client.transport, namespace: sandbox.namespace, pod, port });
  };
  for (const pair of pairs) await listen(context, { ...pair, address, dial });
  await once(context.signal, "abort");
};

/** Reads `8888` or `LOCAL:REMOTE`; an empty local port lets the system choose. */
export function parsePortPair(text: string): { readonly local: number; readonly remote: number } {
  const [local = "", remote] = text.split(":");
  if (remote === undefined) return { local: parsePort(local), remote: parsePort(local) };
  return { local: local === "" || local === "0" ? 0 : parsePort(local), remote: parsePort(remote) };
}

interface Listening {
  readonly address: string;
  readonly local: number;
  readonly remote: number;
  readonly dial: (port: number) => Promise<NodeJS.ReadWriteStream>;
}

async function listen(context: Context, { address, local, remote, dial }: Listening): Promise<void> {
  const server = net.createServer((socket) => {
    socket.on("error", () => undefined);
    void forward(socket, dial(remote)).catch((error: unknown) => {
      context.stderr.write(
        `connection to port ${remote} failed: ${error instanceof Error ? error.message : String(error)}\n`,
      );
      socket.destroy();
    });
  });
  server.listen(local, address);
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  context.stdout.write(`forwarding ${address}:${port} -> ${remote}\n`);
}

async function forward(socket: net.Socket, dialling: Promise<NodeJS.ReadWriteStream>): Promise<void> {
  const tunnel = await dialling;
  await Promise.allSettled([pipeline(socket, tunnel), pipeline(tunnel, socket)]);
}
