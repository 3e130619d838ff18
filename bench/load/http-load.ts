import type { Credentials } from "@agent-sandbox/kube";
import { type Answer, KeepAliveConnection } from "./keep-alive-connection.ts";

/** What one kind of request did under load. */
export interface LoadResult {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly failed: number;
}

/** Keep-alive connections, as a busy controller has them. */
const connectionsCount = 16;

/** Requests after which the client's own code is compiled. */
const warmUpRequests = 1_000;

/** One client program for every server. */
export class HttpLoad implements Disposable {
  readonly #connections: readonly KeepAliveConnection[];
  /** Connections without a request. */
  readonly #idle: KeepAliveConnection[];
  readonly #queue: ((connection: KeepAliveConnection) => void)[] = [];

  constructor(credentials: Credentials) {
    this.#connections = Array.from({ length: connectionsCount }, () => new KeepAliveConnection(credentials));
    this.#idle = [...this.#connections];
  }

  /** Opens the connections and warms this client up with requests that touch no object. */
  async open(): Promise<void> {
    await this.run(warmUpRequests, () => this.send("GET", "/version"));
  }

  /** One request over whichever connection has none. */
  async send(method: string, path: string, body?: string): Promise<Answer> {
    const connection =
      this.#idle.pop() ?? (await new Promise<KeepAliveConnection>((resolve) => this.#queue.push(resolve)));
    try {
      return await connection.send(method, path, body);
    } finally {
      const next = this.#queue.shift();
      if (next === undefined) this.#idle.push(connection);
      else next(connection);
    }
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
    await Promise.all(Array.from({ length: connectionsCount }, worker));
    const totalMs = performance.now() - startMs;
    latencies.sort((a, b) => a - b);
    const at = (share: number): number => latencies[Math.floor(latencies.length * share)] ?? 0;
    return { perSecond: (count / totalMs) * 1_000, p50Ms: at(0.5), p99Ms: at(0.99), failed };
  }

  [Symbol.dispose](): void {
    for (const connection of this.#connections) connection.close();
  }
}
