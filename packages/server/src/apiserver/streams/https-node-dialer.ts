import { request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";
import { connect as tlsConnect } from "node:tls";
import { serviceUnavailable } from "@agent-sandbox/api";
import type { NodeDialer, NodeRequest, NodeResponse } from "./node-dialer.ts";

/** Where a node's kubelet endpoint listens. */
export interface NodeAddress {
  readonly host: string;
  readonly port: number;
}

/** How to reach and trust nodes. */
export interface HttpsNodeDialerOptions {
  /** Throws ApiError when the node is unknown or has not said where it listens. */
  readonly addressOf: (nodeName: string) => NodeAddress;
  /** The authority that signs nodes' serving certificates, PEM. */
  readonly ca: string;
  /** The client certificate by which nodes know this server, PEM. */
  readonly certificate: string;
  readonly key: string;
  /** The name in the node's certificate; default the node's name. */
  readonly serverNameOf?: (nodeName: string) => string;
}

/** A node that does not answer the connection within this is taken for dead. */
const connectTimeoutMs = 10_000;

/** Reaches nodes over mutual TLS. */
export class HttpsNodeDialer implements NodeDialer {
  readonly #options: HttpsNodeDialerOptions;

  constructor(options: HttpsNodeDialerOptions) {
    this.#options = options;
  }

  async request(nodeName: string, { method, path, headers, body, signal }: NodeRequest): Promise<NodeResponse> {
    return new Promise((resolve, reject) => {
      const request = httpsRequest(
        { ...this.#connection(nodeName), method, path, headers, ...(signal === undefined ? {} : { signal }) },
        (response) => {
          const answered = Object.entries(response.headers).map(([name, value]) => [name, String(value)]);
          resolve({
            status: response.statusCode ?? 502,
            headers: Object.fromEntries(answered) as Record<string, string>,
            body: response,
          });
        },
      );
      request.once("error", (cause) => reject(unreachable(nodeName, cause)));
      request.end(body);
    });
  }

  async connect(nodeName: string, signal?: AbortSignal): Promise<Duplex> {
    return new Promise((resolve, reject) => {
      const socket = tlsConnect({ ...this.#connection(nodeName), ALPNProtocols: ["http/1.1"] });
      socket.setTimeout(connectTimeoutMs, () => socket.destroy(new Error("the node does not answer")));
      const onAbort = (): void => void socket.destroy();
      signal?.addEventListener("abort", onAbort, { once: true });
      socket.once("close", () => signal?.removeEventListener("abort", onAbort));
      socket.once("error", (cause) => reject(unreachable(nodeName, cause)));
      socket.once("secureConnect", () => {
        socket.setTimeout(0);
        resolve(socket);
      });
    });
  }

  #connection(nodeName: string) {
    const { host, port } = this.#options.addressOf(nodeName);
    const { ca, certificate, key, serverNameOf } = this.#options;
    return { host, port, ca, cert: certificate, key, servername: serverNameOf?.(nodeName) ?? nodeName };
  }
}

function unreachable(nodeName: string, cause: Error): Error {
  return Object.assign(serviceUnavailable(`error dialing node ${nodeName}: ${cause.message}`, 1), { cause });
}
