import { createServer, type Server } from "node:http";
import type { MetricsRegistry } from "../../telemetry/metrics.ts";
import type { ProfileAnswer, Profiles } from "./profiles.ts";

/** What the probes and the metrics endpoint show. */
export interface HealthOptions {
  readonly metricsAddress: string;
  readonly healthAddress: string;
  readonly registry: MetricsRegistry;
  /** Each names a part of the process and says whether it is ready: caches, webhook. */
  readonly checks: Readonly<Record<string, () => boolean>>;
  /** Served on the metrics address; default none. */
  readonly profiles?: Profiles;
}

/** Running servers; close them in the end. */
export interface HealthServers extends AsyncDisposable {
  readonly metricsPort: number;
  readonly healthPort: number;
}

/** Serves /metrics on one address, /healthz and /readyz on the other. */
export async function openHealthServers(options: HealthOptions): Promise<HealthServers> {
  const metrics = createServer((request, response) => {
    answerMetrics(options, request.url ?? "/")
      .then(({ status, type, body }) => response.writeHead(status, { "content-type": type }).end(body))
      .catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
  const health = createServer((request, response) => {
    const path = request.url?.split("?")[0];
    if (path === "/healthz") return void response.writeHead(200).end("ok");
    if (path !== "/readyz") return void response.writeHead(404).end("not found\n");
    const waiting = Object.entries(options.checks).filter(([, isReady]) => !isReady());
    if (waiting.length === 0) return void response.writeHead(200).end("ok");
    response.writeHead(503).end(waiting.map(([name]) => `[-]${name} is not ready\n`).join(""));
  });
  const metricsPort = await listen(metrics, options.metricsAddress);
  const healthPort = await listen(health, options.healthAddress);
  return {
    metricsPort,
    healthPort,
    async [Symbol.asyncDispose]() {
      await Promise.all([close(metrics), close(health)]);
    },
  };
}

async function answerMetrics({ registry, profiles }: HealthOptions, url: string): Promise<ProfileAnswer> {
  if (url.split("?")[0] === "/metrics")
    return { status: 200, type: registry.contentType, body: await registry.metrics() };
  return (await profiles?.answer(url)) ?? { status: 404, type: "text/plain; charset=utf-8", body: "not found\n" };
}

/** `:8080` means all interfaces; `0` turns a server off. */
export function parseBindAddress(address: string): { readonly host?: string; readonly port: number } | undefined {
  if (address === "0" || address === "") return undefined;
  const colon = address.lastIndexOf(":");
  const port = Number(address.slice(colon + 1));
  if (colon < 0 || !Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new Error(`bind address "${address}" is not host:port`);
  }
  const host = address.slice(0, colon).replace(/^\[|\]$/g, "");
  return { port, ...(host === "" ? {} : { host }) };
}

function listen(server: Server, address: string): Promise<number> {
  const bind = parseBindAddress(address);
  if (bind === undefined) return Promise.resolve(0);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(bind, () => {
      server.off("error", reject);
      const bound = server.address();
      resolve(typeof bound === "object" && bound !== null ? bound.port : 0);
    });
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
