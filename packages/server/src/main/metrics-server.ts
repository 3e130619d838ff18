import http from "node:http";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import type { ListenAddress } from "./engine-config.ts";

/** Serves `/metrics`, `/healthz` and `/readyz`; `isReady` decides the last. */
export async function serveMetrics(
  listen: ListenAddress,
  registry: MetricsRegistry,
  isReady: () => boolean = () => true,
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const server = http.createServer((request, response) => {
    const answer = (status: number, body: string, type = "text/plain"): void => {
      response.writeHead(status, { "Content-Type": type });
      response.end(body);
    };
    if (request.url === "/healthz") return answer(200, "ok");
    if (request.url === "/readyz") return isReady() ? answer(200, "ok") : answer(503, "not ready");
    if (request.url !== "/metrics") return answer(404, "not found");
    registry.metrics().then(
      (text) => answer(200, text, registry.contentType),
      (error: unknown) => answer(500, String(error)),
    );
  });
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
