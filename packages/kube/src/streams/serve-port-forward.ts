import { type Duplex, PassThrough, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createWebSocketStream, type WebSocket } from "ws";
import { acceptSpdy, acceptWebsocket, type UpgradeOffer } from "./accept-upgrade.ts";
import { channelWriter } from "./channel-writer.ts";
import { pauseUntilDrained } from "./paused-input.ts";
import { SpdyConnection, type SpdyStream } from "./spdy/connection.ts";

/** Opens a connection to a port inside a sandbox; rejects with the reason the client is to be told. */
export type PortDialer = (port: number, signal: AbortSignal) => Promise<Duplex>;

/** Stream protocol of port-forward over SPDY. */
const spdyPortForwardProtocol = "portforward.k8s.io";

/** Sub-protocol that carries SPDY frames inside WebSocket messages (kubectl 1.31 and later). */
const tunnelProtocol = "SPDY/3.1+portforward.k8s.io";

/** How long one half of a data/error pair waits for the other; the kubelet's own figure. */
const pairTimeoutMs = 30_000;

interface StreamPair {
  data?: SpdyStream;
  error?: SpdyStream;
  timer: NodeJS.Timeout;
}

/** Sub-protocol with one channel per stream and no multiplexing of connections, as the Python client speaks it. */
const channelProtocol = "v4.channel.k8s.io";

/**
 * Switches to whichever form of port-forward the client asks for and serves it until the client leaves. `ports` are those
 * of the request's query, which only the channel form needs. Throws UpgradeRefused before anything was answered; returns
 * false where the wanted upgrade is none of port-forward's.
 */
export async function servePortForward(
  offer: Omit<UpgradeOffer, "protocols">,
  ports: readonly number[],
  dial: PortDialer,
): Promise<boolean> {
  const wanted = offer.request.headers.upgrade?.toLowerCase();
  if (wanted === "spdy/3.1") {
    acceptSpdy({ ...offer, protocols: [spdyPortForwardProtocol] });
    await servePortForwardSpdy(offer.socket, dial);
    return true;
  }
  if (wanted !== "websocket") return false;
  const websocket = await acceptWebsocket({ ...offer, protocols: [tunnelProtocol, channelProtocol] });
  if (websocket.protocol === tunnelProtocol) await servePortForwardSpdy(createWebSocketStream(websocket), dial);
  else await servePortForwardChannels(websocket, ports, dial);
  return true;
}

/** Serves port-forward over SPDY until the client leaves; each request id is one forwarded connection. */
async function servePortForwardSpdy(transport: Duplex, dial: PortDialer): Promise<void> {
  const pairs = new Map<string, StreamPair>();
  const gone = new AbortController();
  const connection = new SpdyConnection(transport, {
    onStream: (stream) => {
      const port = parsePort(stream.headers["port"]);
      const type = stream.headers["streamtype"];
      if (type !== "data" && type !== "error") throw new Error(`unexpected stream type ${JSON.stringify(type)}`);
      const id = stream.headers["requestid"] ?? pairIdFromStreamId(stream.id, type);
      const pair = pairs.get(id) ?? { timer: setTimeout(() => dropPair(pairs, id), pairTimeoutMs) };
      if (pair[type] !== undefined) throw new Error(`request ${id} has two ${type} streams`);
      pair[type] = stream;
      pairs.set(id, pair);
      stream.reply();
      if (pair.data === undefined || pair.error === undefined) return;
      clearTimeout(pair.timer);
      pairs.delete(id);
      void forward({ data: pair.data, error: pair.error, port, dial, signal: gone.signal });
    },
  });
  await connection.closed;
  gone.abort(new Error("client closed the connection"));
  for (const pair of pairs.values()) clearTimeout(pair.timer);
}

/** Clients from before request ids open the error stream first and the data stream right after it. */
function pairIdFromStreamId(streamId: number, type: "data" | "error"): string {
  return `stream-${type === "error" ? streamId : streamId - 2}`;
}

function dropPair(pairs: Map<string, StreamPair>, id: string): void {
  const pair = pairs.get(id);
  pairs.delete(id);
  pair?.data?.destroy();
  pair?.error?.destroy();
}

interface Forward {
  readonly data: Duplex;
  readonly error: Writable;
  readonly port: number;
  readonly dial: PortDialer;
  readonly signal: AbortSignal;
}

async function forward({ data, error, port, dial, signal }: Forward): Promise<void> {
  let target: Duplex;
  try {
    target = await dial(port, signal);
  } catch (cause) {
    error.end(`error forwarding port ${port}: ${cause instanceof Error ? cause.message : String(cause)}`);
    data.destroy();
    return;
  }
  error.end();
  await Promise.allSettled([pipeline(data, target, { signal }), pipeline(target, data, { signal })]);
  target.destroy();
}

/**
 * Serves port-forward over plain WebSocket channels (`v4.channel.k8s.io`, as the Python client does): two channels per
 * port in the order of the `port` parameters, each starting with the port as two little-endian bytes. The protocol has no
 * half-close: the socket is closed when the last of the connections is over, as the kubelet does.
 */
async function servePortForwardChannels(socket: WebSocket, ports: readonly number[], dial: PortDialer): Promise<void> {
  const gone = new AbortController();
  const forwards: Promise<void>[] = [];
  const inputs = ports.map((port, index) => {
    const toTarget = new PassThrough();
    const data = channelWriter(socket, index * 2);
    const error = channelWriter(socket, index * 2 + 1);
    data.on("error", () => toTarget.destroy());
    error.on("error", () => toTarget.destroy());
    const head = Buffer.from([port & 0xff, port >> 8]);
    data.write(head);
    error.write(head);
    forwards.push(forwardChannel({ toTarget, data, error, port, dial, signal: gone.signal }));
    return toTarget;
  });
  void Promise.all(forwards).then(() => socket.close());
  socket.on("message", (message: Buffer) => {
    const number = message[0] ?? 1;
    const input = number % 2 === 0 ? inputs[number / 2] : undefined;
    if (input === undefined || input.destroyed || input.write(message.subarray(1))) return;
    pauseUntilDrained(socket, input);
  });
  await new Promise<void>((resolve) => socket.once("close", () => resolve()));
  gone.abort(new Error("client closed the connection"));
  for (const input of inputs) input.destroy();
}

interface ChannelForward {
  readonly toTarget: PassThrough;
  readonly data: Writable;
  readonly error: Writable;
  readonly port: number;
  readonly dial: PortDialer;
  readonly signal: AbortSignal;
}

async function forwardChannel({ toTarget, data, error, port, dial, signal }: ChannelForward): Promise<void> {
  let target: Duplex;
  try {
    target = await dial(port, signal);
  } catch (cause) {
    const reason = `error forwarding port ${port}: ${cause instanceof Error ? cause.message : String(cause)}`;
    // The socket is closed behind this, and what still waits to be sent would be dropped.
    await new Promise<void>((resolve) => error.end(reason, () => resolve()));
    return;
  }
  const sending = pipeline(toTarget, target, { signal });
  // What the target says last is the end of both ways: nothing else could tell the client of it.
  await Promise.allSettled([pipeline(target, data, { signal })]);
  target.destroy();
  await Promise.allSettled([sending]);
}

/** Reads a port number; throws when it is none. */
export function parsePort(text: string | undefined | null): number {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw new Error(`invalid port ${JSON.stringify(text)}`);
  return port;
}
