import type { IncomingMessage, ServerResponse } from "node:http";
import https from "node:https";
import type { TLSSocket } from "node:tls";
import { type CallerChecks, requestUser } from "../apiserver/http/request-user.ts";
import { wireError } from "../apiserver/pipeline/pipeline.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import type { ListenAddress } from "./engine-config.ts";

/** The address to listen on, the metrics to serve and the check that a caller must pass. */
export interface MetricsServerOptions {
  readonly listen: ListenAddress;
  /** PEM; the authority's is of client certificates. */
  readonly tls: { readonly certificate: string; readonly key: string; readonly clientCa: string };
  readonly registry: MetricsRegistry;
  /** A user who may `get` the path `/metrics` of the API may read them here. */
  readonly checks: CallerChecks;
}

/** Serves `/metrics` to those who may read it, and `/healthz` to everybody. */
export async function serveMetrics(
  options: MetricsServerOptions,
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const { listen, tls } = options;
  const server = https.createServer(
    { cert: tls.certificate, key: tls.key, ca: tls.clientCa, requestCert: true, rejectUnauthorized: false },
    (request, response) => void answer(options, request, response),
  );
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(listen.port, listen.host, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : listen.port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(
  { registry, checks }: MetricsServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const send = (status: number, body: string, type = "text/plain"): void => {
    response.writeHead(status, { "Content-Type": type });
    response.end(body);
  };
  if (request.url === "/healthz") return send(200, "ok");
  if (request.url !== "/metrics") return send(404, "not found");
  try {
    const user = await requestUser(checks, request.socket as TLSSocket, request.headers);
    const question = { kind: "non-resource", verb: "get", path: "/metrics" } as const;
    if (checks.authorizer.authorize(question, user).verdict !== "allow")
      return send(403, `user "${user.username}" may not get path "/metrics"`);
    send(200, await registry.metrics(), registry.contentType);
  } catch (error) {
    const { status, message } = wireError(error);
    send(status, message);
  }
}
