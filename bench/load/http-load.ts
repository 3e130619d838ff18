import { Agent, request } from "node:https";
import type { Credentials } from "@agent-sandbox/kube";

/** What one kind of request did under load. */
export interface LoadResult {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly failed: number;
}

/** Keep-alive connections, as a busy controller has them. */
const connections = 16;

/** One client program for every server. */
export class HttpLoad implements Disposable {
  readonly #agent: Agent;
  readonly #url: URL;

  constructor({ server, ca, cert, key }: Credentials) {
    this.#url = new URL(server);
    this.#agent = new Agent({ keepAlive: true, maxSockets: connections, ca, cert, key });
  }

  /** One request; gives the status and the number of bytes that came back. */
  send(method: string, path: string, body?: string): Promise<{ status: number; bytes: number; text: string }> {
    const type = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    return new Promise((resolve, reject) => {
      const options = { agent: this.#agent, host: this.#url.hostname, port: this.#url.port, method, path };
      const headers = body === undefined ? {} : { "content-type": type, "content-length": Buffer.byteLength(body) };
      const sent = request({ ...options, headers }, (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () => {
          const whole = Buffer.concat(chunks);
          resolve({ status: response.statusCode ?? 0, bytes: whole.length, text: whole.toString() });
        });
      });
      sent.on("error", reject);
      sent.end(body);
    });
  }

  /** Sends `count` requests over all connections and measures each. */
  async run(count: number, send: (index: number) => Promise<{ status: number }>): Promise<LoadResult> {
    const latencies: number[] = [];
    let next = 0;
    let failed = 0;
    const startMs = performance.now();
    const worker = async (): Promise<void> => {
      while (next < count) {
        const index = next++;
        const sentMs = performance.now();
        // A server may close a connection that idled; the request counts as failed and the run goes on.
        const { status } = await send(index).catch(() => ({ status: 599 }));
        if (status >= 300) failed += 1;
        latencies.push(performance.now() - sentMs);
      }
    };
    await Promise.all(Array.from({ length: connections }, worker));
    const totalMs = performance.now() - startMs;
    latencies.sort((a, b) => a - b);
    const at = (share: number): number => latencies[Math.floor(latencies.length * share)] ?? 0;
    return { perSecond: (count / totalMs) * 1_000, p50Ms: at(0.5), p99Ms: at(0.99), failed };
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}
