import net from "node:net";
import type { Clock } from "@agent-sandbox/kube";
import { dialInside } from "./dial-inside.ts";

/** The port of sandboxd inside every sandbox. */
export const daemonPort = 49_900;

/** Ports published clients use; nothing binds them in a plain image, so sandboxd answers for them. */
const daemonAliases: ReadonlySet<number> = new Set([8888, 8080, 9090]);

/** An alias that was refused is not tried again for this long: a program that binds it is noticed soon enough. */
const fallbackMemoryMs = 2_000;

/** Dials the ports of sandboxes. */
export class Dialer {
  readonly #clock: Clock;
  readonly #connectTimeoutMs: number;
  /** `address:port` to the time until which the alias is taken for refused; bounded by three ports per live sandbox and swept when large. */
  readonly #refused = new Map<string, number>();

  constructor(options: { readonly clock: Clock; readonly connectTimeoutMs: number }) {
    this.#clock = options.clock;
    this.#connectTimeoutMs = options.connectTimeoutMs;
  }

  /** The port to dial first for a wanted one. */
  portFor(address: string, port: number): number {
    if (!daemonAliases.has(port)) return port;
    const untilMs = this.#refused.get(`${address}:${port}`);
    return untilMs !== undefined && this.#clock.nowMs() < untilMs ? daemonPort : port;
  }

  /**
   * Connects. What is refused may listen on the sandbox's loopback address only, as development servers do, and is reached
   * through the daemon; an alias that nothing listens on is the daemon itself. Rejects with the system's error, or ETIMEDOUT.
   */
  async dial(address: string, port: number): Promise<net.Socket> {
    const first = this.portFor(address, port);
    try {
      return await connect(address, first, this.#connectTimeoutMs);
    } catch (error) {
      if (first === daemonPort || (error as NodeJS.ErrnoException).code !== "ECONNREFUSED") throw error;
      const inside = await this.#dialInside(address, first);
      if (inside !== undefined) return inside;
      if (!daemonAliases.has(first)) throw error;
      this.#remember(address, first);
      return connect(address, daemonPort, this.#connectTimeoutMs);
    }
  }

  async #dialInside(address: string, port: number): Promise<net.Socket | undefined> {
    let daemon: net.Socket;
    try {
      daemon = await connect(address, daemonPort, this.#connectTimeoutMs);
    } catch {
      // No daemon: the refusal of the port itself is what the caller should hear of.
      return undefined;
    }
    return (await dialInside(daemon, port, this.#connectTimeoutMs)) ? daemon : undefined;
  }

  #remember(address: string, port: number): void {
    const nowMs = this.#clock.nowMs();
    if (this.#refused.size > 4096) {
      for (const [key, untilMs] of this.#refused) if (untilMs < nowMs) this.#refused.delete(key);
    }
    this.#refused.set(`${address}:${port}`, nowMs + fallbackMemoryMs);
  }
}

function connect(host: string, port: number, timeoutMs: number): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port, noDelay: true, keepAlive: true, allowHalfOpen: true });
    const onTimeout = (): void => {
      socket.destroy(Object.assign(new Error(`connect ${host}:${port} timed out`), { code: "ETIMEDOUT" }));
    };
    const timer = setTimeout(onTimeout, timeoutMs);
    socket.once("connect", () => {
      clearTimeout(timer);
      socket.removeListener("error", reject);
      resolve(socket);
    });
    socket.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
  });
}
