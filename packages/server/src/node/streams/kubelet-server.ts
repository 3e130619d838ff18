import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { type Clock, FairLimit, StreamWriter, UpgradeRefused } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { OpenStreams, StreamCutter } from "../activity/open-streams.ts";
import type { NodeConfig } from "../config.ts";
import type { KubeletAuth } from "./kubelet-auth.ts";
import { type KubeletBackend, KubeletError } from "./kubelet-backend.ts";
import { accessFor, type KubeletRoute, parseRoute, RouteError } from "./kubelet-routes.ts";
import { serveUpgrade } from "./kubelet-upgrade.ts";

/** The endpoint's parts. */
export interface KubeletServerOptions {
  readonly config: NodeConfig["kubelet"];
  readonly auth: KubeletAuth;
  readonly backend: KubeletBackend;
  /** Told of every command and tunnel. */
  readonly streams: OpenStreams;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Commands, tunnels and followed logs that are open, for one pod and for all. Full: 429. */
const streamLimits = { perHolderMax: 128, totalMax: 1_024, guaranteed: 4 };
const logLimits = { perHolderMax: 16, totalMax: 256, guaranteed: 2 };

/** The node's HTTPS endpoint, as the API server dials it: commands, logs, tunnels and figures. */
export class KubeletServer {
  readonly #options: KubeletServerOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Duplex>();
  readonly #openStreams = new FairLimit(streamLimits);
  readonly #openLogs = new FairLimit(logLimits);

  constructor(options: KubeletServerOptions) {
    this.#options = options;
    const { certificate, key, clientCa } = options.config;
    this.#server = createServer(
      {
        cert: certificate,
        key,
        minVersion: "TLSv1.2",
        requestCert: clientCa !== undefined,
        rejectUnauthorized: false,
        ...(clientCa !== undefined && { ca: clientCa }),
      },
      (request, response) => void this.#serve(request, response),
    );
    this.#server.on("upgrade", (request, socket, head) => void this.#upgrade(request, socket, head));
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  /** Binds and returns the port. */
  async listen(): Promise<number> {
    const { host, port } = this.#options.config;
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(port, host, () => resolve());
    });
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const route = await this.#admit(request);
      await this.#respond(route, response);
    } catch (error) {
      const { status, message } = this.#describe(error);
      if (!response.headersSent) response.writeHead(status, { "content-type": "text/plain; charset=utf-8" });
      response.end(response.writableEnded ? undefined : `${message}\n`);
    }
  }

  async #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on("error", () => socket.destroy());
    try {
      const route = await this.#admit(request);
      const pod = podOf(route);
      const held = new AbortController();
      if (pod !== undefined) this.#count(pod, socket, (why) => held.abort(new KubeletError(409, why)));
      await serveUpgrade({ route, request, socket, head, backend: this.#options.backend, held: held.signal });
    } catch (error) {
      const { status, message } = this.#describe(error);
      const body = `${message}\n`;
      if (socket.writable)
        socket.end(
          `HTTP/1.1 ${status} ${status === 404 ? "Not Found" : "Error"}\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
        );
    }
  }

  /** Takes a place among the pod's open streams until the connection ends. */
  #count(pod: string, socket: Duplex, cut: StreamCutter): void {
    if (!this.#openStreams.tryTake(pod)) throw tooMany(pod, "commands and tunnels");
    const end = this.#options.streams.begin(pod, cut);
    socket.once("close", () => {
      end();
      this.#openStreams.give(pod);
    });
  }

  /** Reads the route, then asks who it is and whether they may. A route that does not exist is not told apart before that. */
  async #admit(request: IncomingMessage): Promise<KubeletRoute> {
    const { auth, clock } = this.#options;
    const caller = await auth.authenticate(request.socket as TLSSocket, request.headers.authorization);
    if (caller === undefined) throw new KubeletError(401, "Unauthorized");
    const url = URL.parse(request.url ?? "/", "https://node");
    if (url === null) throw new KubeletError(400, "malformed request target");
    const route = parseRoute(url, clock.nowMs());
    const access = route === undefined ? ({ verb: "get", subresource: "proxy" } as const) : accessFor(route);
    if (!(await auth.authorize(caller, access))) {
      throw new KubeletError(
        403,
        `Forbidden (user=${caller.username}, verb=${access.verb}, resource=nodes, subresource=${access.subresource})`,
      );
    }
    if (route === undefined) throw new KubeletError(404, "404 page not found");
    return route;
  }

  async #respond(route: KubeletRoute, response: ServerResponse): Promise<void> {
    const { backend } = this.#options;
    switch (route.kind) {
      case "logs": {
        const pod = `${route.ref.namespace}/${route.ref.pod}`;
        if (!this.#openLogs.tryTake(pod)) throw tooMany(pod, "logs");
        const gone = new AbortController();
        response.on("close", () => {
          this.#openLogs.give(pod);
          gone.abort(new Error("client closed the connection"));
        });
        const lines = backend.logs(route, gone.signal);
        response.writeHead(200, { "content-type": "text/plain" });
        response.flushHeaders();
        return sendLines(lines, response, gone.signal);
      }
      case "summary":
        return void response
          .writeHead(200, { "content-type": "application/json" })
          .end(JSON.stringify(await backend.summary()));
      case "resource-metrics":
        return void response
          .writeHead(200, { "content-type": "text/plain; version=0.0.4" })
          .end(await backend.resourceMetrics());
      case "pod-metrics":
        return void response
          .writeHead(200, { "content-type": "text/plain; version=0.0.4" })
          .end(await backend.podMetrics());
      case "metrics":
        return void response
          .writeHead(200, { "content-type": "text/plain; version=0.0.4" })
          .end(await backend.metrics());
      case "pods":
        return void response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(backend.pods()));
      case "healthz":
        return void response.writeHead(200, { "content-type": "text/plain" }).end("ok");
      case "exec":
      case "attach":
      case "port-forward":
        throw new KubeletError(400, "you must specify at least 1 of stdin, stdout, stderr over an upgraded connection");
      default:
        return route satisfies never;
    }
  }

  #describe(error: unknown): { status: number; message: string } {
    if (error instanceof KubeletError || error instanceof UpgradeRefused)
      return { status: error.status, message: error.message };
    if (error instanceof RouteError || error instanceof URIError) return { status: 400, message: error.message };
    this.#options.logger.error({ err: error }, "request to the node endpoint failed");
    return { status: 500, message: "internal error" };
  }
}

function tooMany(pod: string, what: string): KubeletError {
  return new KubeletError(429, `too many ${what} of pod ${pod} are open; close some or try again later`);
}

/** Goes no faster than the client reads; a client that has gone is no error. */
async function sendLines(lines: AsyncIterable<Buffer>, response: ServerResponse, gone: AbortSignal): Promise<void> {
  const writer = new StreamWriter(response);
  try {
    for await (const line of lines) if (!(await writer.send(line))) return;
  } catch (error) {
    if (!gone.aborted) throw error;
  }
  response.end();
}

/** The pod that a route leads into. */
function podOf(route: KubeletRoute): string | undefined {
  if (route.kind === "exec" || route.kind === "attach") return `${route.ref.namespace}/${route.ref.pod}`;
  return route.kind === "port-forward" ? `${route.namespace}/${route.pod}` : undefined;
}
