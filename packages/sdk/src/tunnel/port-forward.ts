import { Duplex } from "node:stream";
import { pathOf, pods } from "@agent-sandbox/api/resource";
import type { Transport } from "@agent-sandbox/kube/transport";
import { SandboxError } from "../errors/sandbox-error.ts";
import { ChannelSocket } from "./channel-socket.ts";

/** Which port of which pod. */
export interface PortForwardTarget {
  readonly transport: Transport;
  readonly namespace: string;
  readonly pod: string;
  readonly port: number;
  readonly signal?: AbortSignal | undefined;
}

const dataChannel = 0;
const errorChannel = 1;
/** What API servers take in one frame without trouble; a large one would end the connection. */
const sendBytesMax = 32 * 1024;
/** Each channel begins with its port, two bytes. */
const prefixBytes = 2;

/**
 * Opens one TCP connection to a pod's port through the API server, over the WebSocket channels that every Kubernetes
 * version serves. The protocol has no half-close: ending the stream closes it.
 */
export async function openPortForward({ transport, namespace, pod, port, signal }: PortForwardTarget): Promise<Duplex> {
  const tunnel = new PortForwardStream();
  const query = new URLSearchParams({ ports: String(port) });
  // Our own node and older kubelets read `port`, the API's documented parameter is `ports`.
  query.append("port", String(port));
  const socket = await ChannelSocket.open({
    transport,
    path: `${pathOf(pods, { namespace, name: pod })}/portforward?${query.toString()}`,
    protocols: ["v4.channel.k8s.io"],
    signal,
    onMessage: (channel, payload) => tunnel.receive(channel, payload),
    onClose: (error) => tunnel.finish(error),
  });
  tunnel.attach(socket);
  return tunnel;
}

/** The connection as a stream; carries the few methods of a socket that Node's HTTP client calls. */
class PortForwardStream extends Duplex {
  #socket: ChannelSocket | undefined;
  readonly #seen = new Set<number>();

  attach(socket: ChannelSocket): void {
    this.#socket = socket;
  }

  receive(channel: number, payload: Buffer): void {
    const isFirst = !this.#seen.has(channel);
    this.#seen.add(channel);
    const body = isFirst ? payload.subarray(prefixBytes) : payload;
    if (body.length === 0) return;
    if (channel === errorChannel) this.destroy(new SandboxError("unavailable", body.toString("utf8").trim()));
    else if (channel === dataChannel && !this.push(body)) this.#socket?.pause();
  }

  finish(error: Error | undefined): void {
    if (error !== undefined) this.destroy(error);
    else this.push(null);
  }

  override _read(): void {
    this.#socket?.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    const socket = this.#socket;
    if (socket === undefined) return done(new Error("bug: written before it was open"));
    const sendFrom = (at: number): void => {
      const end = at + sendBytesMax;
      const next = (error?: Error | null): void => (error ? done(error) : sendFrom(end));
      socket.send(dataChannel, chunk.subarray(at, end), end >= chunk.length ? done : next);
    };
    sendFrom(0);
  }

  override _final(done: () => void): void {
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket?.close();
    done(error);
  }

  setKeepAlive(): this {
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setTimeout(): this {
    return this;
  }

  ref(): this {
    this.#socket?.setRef(true);
    return this;
  }

  unref(): this {
    this.#socket?.setRef(false);
    return this;
  }
}
