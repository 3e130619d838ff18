import https from "node:https";
import net from "node:net";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import { type Node, nodes, serviceUnavailable } from "@agent-sandbox/api";
import { type Client, Informer, systemClock } from "@agent-sandbox/kube";
import type { KeyAndCertificate } from "../apiserver/auth/certificate.ts";
import type { UserInfo } from "../apiserver/request/user-info.ts";
import type { NodeDialer, NodeRequest, NodeResponse } from "../apiserver/scope/node-dialer.ts";
import { tunnelPreamble } from "../router/tunnel-preamble.ts";

/** A node that does not answer the connection within this is taken for dead. */
const connectTimeoutMs = 10_000;

/** How long a connection that was opened ahead is kept; a node ends one that asks for nothing after a minute. */
const spareKeptMs = 20_000;

/** The API server's client certificate for kubelets, and the authority that kubelets' certificates must be of. */
export interface KubeletDialerOptions {
  readonly caPem: string;
  readonly credentials: KeyAndCertificate;
  /** Where the router listens for tunnels. */
  readonly routerSocket: string;
}

/** Reaches nodes where their Node objects say that their kubelet endpoint is. */
export class KubeletDialer implements NodeDialer {
  readonly #options: KubeletDialerOptions;
  #nodes: Informer<Node> | undefined;
  /** One open connection per node, for the next stream: a handshake costs as much as a short command. Bound: the number of nodes. */
  readonly #spares = new Map<string, tls.TLSSocket>();

  constructor(options: KubeletDialerOptions) {
    this.#options = options;
  }

  /** Learns of nodes from the API until the signal aborts. */
  follow(client: Client, signal: AbortSignal): void {
    this.#nodes = new Informer<Node>({ client, clock: systemClock, resource: nodes });
    this.#nodes.run(signal).catch(() => undefined);
  }

  request(nodeName: string, request: NodeRequest): Promise<NodeResponse> {
    return new Promise((resolve, reject) => {
      const outgoing = https.request(
        {
          ...this.#endpoint(nodeName),
          ...this.#tls(),
          method: request.method,
          path: request.path,
          headers: { ...request.headers },
          agent: false,
          ...(request.signal !== undefined && { signal: request.signal }),
        },
        (response) => {
          const headers = Object.fromEntries(
            Object.entries(response.headers).map(([name, value]) => [name, [value ?? ""].flat().join(", ")]),
          );
          resolve({ status: response.statusCode ?? 502, headers, body: response });
        },
      );
      // For the whole life of the connection: what fails after the answer began is the reader's to notice.
      outgoing.on("error", (cause) => reject(unreachable(nodeName, cause)));
      outgoing.end(request.body);
    });
  }

  async connect(nodeName: string, signal?: AbortSignal): Promise<Duplex> {
    const socket = this.#takeSpare(nodeName) ?? (await this.#open(nodeName, signal));
    socket.setTimeout(0);
    signal?.addEventListener("abort", () => socket.destroy(signal.reason as Error), { once: true });
    void this.#openAhead(nodeName);
    return socket;
  }

  /** One that the node has spoken on is about to be closed by it. */
  #takeSpare(nodeName: string): tls.TLSSocket | undefined {
    const spare = this.#spares.get(nodeName);
    this.#spares.delete(nodeName);
    if (spare === undefined || spare.destroyed || spare.readableLength > 0) return undefined;
    return spare;
  }

  #open(nodeName: string, signal?: AbortSignal): Promise<tls.TLSSocket> {
    return new Promise((resolve, reject) => {
      const endpoint = this.#endpoint(nodeName);
      const socket = tls.connect({ ...endpoint, ...this.#tls(), ALPNProtocols: ["http/1.1"] }, () => resolve(socket));
      socket.setTimeout(connectTimeoutMs, () => socket.destroy(new Error("the node does not answer")));
      socket.on("error", (cause) => reject(unreachable(nodeName, cause)));
      signal?.addEventListener("abort", () => socket.destroy(signal.reason as Error), { once: true });
    });
  }

  /** A connection that cannot be opened ahead is opened, and its failure told, when it is needed. */
  async #openAhead(nodeName: string): Promise<void> {
    const socket = await this.#open(nodeName).catch(() => undefined);
    if (socket === undefined) return;
    if (this.#spares.has(nodeName)) return void socket.destroy();
    this.#spares.set(nodeName, socket);
    const drop = (): void => {
      if (this.#spares.get(nodeName) === socket) this.#spares.delete(nodeName);
    };
    socket.setTimeout(spareKeptMs, () => {
      drop();
      socket.destroy();
    });
    for (const event of ["close", "end"] as const) socket.once(event, drop);
  }

  connectVirtual(component: string, user: UserInfo, signal?: AbortSignal): Promise<Duplex> {
    if (component !== "router") throw serviceUnavailable(`there is no component ${component}`, 5);
    return new Promise((resolve, reject) => {
      const socket = net.connect({ path: this.#options.routerSocket, allowHalfOpen: true }, () => {
        socket.write(tunnelPreamble(user));
        resolve(socket);
      });
      socket.on("error", (cause) => {
        reject(Object.assign(serviceUnavailable("the router does not answer", 1), { cause }));
      });
      signal?.addEventListener("abort", () => socket.destroy(), { once: true });
    });
  }

  #endpoint(nodeName: string): { host: string; port: number; servername: string } {
    const node = this.#nodes?.get(nodeName);
    const address = node?.status?.addresses?.find(({ type }) => type === "InternalIP")?.address;
    const port = node?.status?.daemonEndpoints?.kubeletEndpoint?.Port;
    if (address === undefined || port === undefined)
      throw serviceUnavailable(`node ${nodeName} has no kubelet endpoint yet`, 1);
    // The certificate names the node: an address can be another machine's tomorrow.
    return { host: address, port, servername: nodeName };
  }

  #tls(): { ca: string; cert: string; key: string } {
    const { caPem, credentials } = this.#options;
    return { ca: caPem, cert: credentials.certificatePem, key: credentials.privateKeyPem };
  }
}

function unreachable(nodeName: string, cause: Error): Error {
  return Object.assign(serviceUnavailable(`error dialing node ${nodeName}: ${cause.message}`, 1), { cause });
}
