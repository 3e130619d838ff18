import type Http from "node:http";
import type { Agent, ClientRequest, IncomingMessage } from "node:http";
import type Https from "node:https";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Credentials } from "./credentials.ts";
import type { HttpCarrier } from "./http-carrier.ts";
import { apiErrorOf } from "./kube-client.ts";
import { addressOf, keepAliveMs, tlsOptions } from "./tls-connection.ts";
import type { KubeRequest, KubeResponse, UpgradedConnection, UpgradeRequest } from "./transport.ts";

/** Idle connections kept for the next request. The busy ones are as many as callers have requests under way. */
const freeSocketsMax = 16;

/** HTTP/1.1 with kept connections. */
export class Http1 implements HttpCarrier {
  readonly #credentials: Credentials;
  readonly #agent: Agent;
  #adopted: TLSSocket | undefined;

  constructor(credentials: Credentials) {
    this.#credentials = credentials;
    const options = { keepAlive: true, keepAliveMsecs: keepAliveMs, maxFreeSockets: freeSocketsMax, noDelay: true };
    this.#agent = addressOf(credentials).secure
      ? new (https().Agent)({ ...options, ...tlsOptions(credentials), ALPNProtocols: ["http/1.1"] })
      : new (http().Agent)(options);
    const connect = this.#agent.createConnection.bind(this.#agent);
    this.#agent.createConnection = (target, callback) => this.#takeAdopted() ?? connect(target, callback);
  }

  /** Takes a connection that the negotiation left over, for the next request. */
  adopt(socket: TLSSocket): void {
    this.#adopted = socket;
    socket.once("close", () => {
      if (this.#adopted === socket) this.#adopted = undefined;
    });
    // Until a request takes it, this is its only listener.
    socket.on("error", () => undefined);
  }

  async request(request: KubeRequest): Promise<KubeResponse> {
    try {
      return await this.#attempt(request);
    } catch (error) {
      // The server closed an idle connection while the request was on its way: asking again is safe for a read.
      if (!(error instanceof StaleConnection)) throw error;
      if (request.method !== "GET" || request.signal?.aborted === true) throw error.cause;
      return this.#attempt(request);
    }
  }

  #attempt(request: KubeRequest): Promise<KubeResponse> {
    return new Promise((resolve, reject) => {
      const sent = this.#start(request, request.headers ?? {});
      sent.once("response", (message) => resolve(responseOf(message)));
      sent.once("error", (cause: NodeJS.ErrnoException) => {
        if (request.signal?.aborted === true) reject(request.signal.reason);
        else if (sent.reusedSocket && cause.code === "ECONNRESET") reject(new StaleConnection("stale", { cause }));
        else reject(cause);
      });
      sent.end(request.body);
    });
  }

  /** Each upgrade has a connection of its own, because it never comes back. */
  upgrade(request: UpgradeRequest): Promise<UpgradedConnection> {
    return new Promise((resolve, reject) => {
      const headers = { ...request.headers, connection: "Upgrade", upgrade: request.protocol };
      const sent = this.#start(request, headers);
      sent.once("upgrade", (message: IncomingMessage, stream: Duplex, head: Buffer) => {
        if (head.length > 0) stream.unshift(head);
        resolve({ headers: headersOf(message.headers), stream });
      });
      sent.once("response", (message) => void apiErrorOf(responseOf(message)).then(reject, reject));
      sent.once("error", (error) => reject(request.signal?.aborted === true ? request.signal.reason : error));
      sent.end(request.body);
    });
  }

  close(): void {
    this.#adopted?.destroy();
    this.#agent.destroy();
  }

  #takeAdopted(): TLSSocket | undefined {
    const adopted = this.#adopted;
    this.#adopted = undefined;
    return adopted;
  }

  #start({ method, path, body, signal }: KubeRequest, headers: Readonly<Record<string, string>>): ClientRequest {
    const { host, port, secure } = addressOf(this.#credentials);
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    return (secure ? https() : http()).request({
      host,
      port,
      method,
      path,
      headers: { ...headers, ...length },
      agent: this.#agent,
      ...(signal !== undefined && { signal }),
    });
  }
}

/** Loaded on first use, because they cost every command that only prints its help twenty milliseconds. */
const http = (): typeof Http => process.getBuiltinModule("node:http");
const https = (): typeof Https => process.getBuiltinModule("node:https");

class StaleConnection extends Error {}

function responseOf(message: IncomingMessage): KubeResponse {
  return { status: message.statusCode ?? 0, headers: headersOf(message.headers), body: message };
}

/** Flattens what Node gives: repeated headers joined, pseudo headers left out. */
export function headersOf(headers: NodeJS.Dict<string | string[] | number>): Record<string, string> {
  const flat: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(":")) continue;
    flat[name] = Array.isArray(value) ? value.join(", ") : String(value);
  }
  return flat;
}
