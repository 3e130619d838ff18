import net from "node:net";
import type { Clock } from "@agent-sandbox/kube";
import type { Target } from "../addressing/target.ts";
import { RoutingError } from "../routing-error.ts";
import { dialInside } from "./dial-inside.ts";

/** The port of sandboxd inside every sandbox. */
const daemonPort = 49_900;

/** Ports published clients use; nothing binds them in a plain image, so sandboxd answers for them. */
const daemonAliases: ReadonlySet<number> = new Set([8888, 8080, 9090]);

/** An alias that was refused is not tried again for this long: a program that binds it is noticed soon enough. */
const fallbackMemoryMs = 2_000;

/** A port of a sandbox, and how it is dialled. */
export interface Upstream {
  readonly address: string;
  readonly port: number;
  /** The daemon answers on an alias that nothing listens on. */
  readonly hasAliases: boolean;
}

/**
 * The port that a target names. Published clients name their sandbox in a header and expect the daemon behind their ports; a link or a host name is
 * for what its owner serves there, and must not turn into the way to run commands when that is not up.
 */
export function upstreamOf(address: string, { form, port }: Target): Upstream {
  return { address, port, hasAliases: form === "header" };
}

/** Tells upstreams apart; begins with the address and a colon. */
export function upstreamKey({ address, port, hasAliases }: Upstream): string {
  return hasAliases ? `${address}:${port}` : `${address}:${port}:own`;
}

/** What dialling needs. */
export interface DialerOptions {
  readonly clock: Clock;
  readonly connectTimeoutMs: number;
  /** How long connections to a Pod that goes away may last. */
  readonly leftMs: number;
}

/** All containers of a sandbox have ended while something was open to it. */
export function containersEnded(): RoutingError {
  return new RoutingError(502, "The backend sandbox's containers ended before it had answered.");
}

/** A sandbox fell asleep while something was open to it; the answer that was awaited comes no more, or not before its owner resumes it. */
export class FellAsleepError extends RoutingError {
  constructor(status = 502, detail = "The backend sandbox fell asleep before it had answered.") {
    super(status, detail);
  }
}

/** Its owner froze a sandbox while something was open to it, and lets no traffic wake it. A status that clients do not retry: what was asked for goes on with the sandbox. */
export function suspendedUnder({
  namespace,
  name,
}: {
  readonly namespace: string;
  readonly name: string;
}): RoutingError {
  const how = `resume it with agent-sandbox resume ${name}`;
  return new FellAsleepError(
    409,
    `sandbox ${namespace}/${name} was suspended by its owner before it had answered; ${how}`,
  );
}

/** Dials the ports of sandboxes. */
export class Dialer {
  readonly #clock: Clock;
  readonly #connectTimeoutMs: number;
  /** `address:port` to the time until which the alias is taken for refused; bounded by three ports per live sandbox and swept when large. */
  readonly #refused = new Map<string, number>();
  /** Connections that are open, by address. Bound: the limits on open exchanges and on idle connections. */
  readonly #open = new Map<string, Set<net.Socket>>();
  readonly #leftMs: number;

  constructor(options: DialerOptions) {
    this.#clock = options.clock;
    this.#connectTimeoutMs = options.connectTimeoutMs;
    this.#leftMs = options.leftMs;
  }

  /**
   * The Pod at an address goes away. What is open to it may come to an end within its grace period; after that no client is
   * left to end it: a sandbox that is taken down with its network says no goodbye.
   */
  abandon(address: string): void {
    const left = [...(this.#open.get(address) ?? [])];
    if (left.length === 0) return;
    const cut = (): void => {
      for (const socket of left) socket.destroy();
    };
    setTimeout(cut, this.#leftMs).unref();
  }

  /** The containers at an address have ended or sleep: nothing there answers or closes what is open. */
  cut(address: string, why: () => RoutingError): void {
    // One for each: what becomes of a request is written down in its error.
    for (const socket of this.#open.get(address) ?? []) socket.destroy(why());
  }

  /** The port to dial first for a wanted one. */
  #portFor({ address, port, hasAliases }: Upstream): number {
    if (!hasAliases || !daemonAliases.has(port)) return port;
    const untilMs = this.#refused.get(`${address}:${port}`);
    return untilMs !== undefined && this.#clock.nowMs() < untilMs ? daemonPort : port;
  }

  /**
   * Connects. What is refused may listen on the sandbox's loopback address only, as development servers do, and is reached
   * through the daemon; an alias that nothing listens on is the daemon itself. Rejects with the system's error, or ETIMEDOUT.
   * With `onread` what arrives goes there, except through the daemon: such a socket emits it.
   */
  async dial(upstream: Upstream, onread?: net.OnReadOpts): Promise<net.Socket> {
    const { address } = upstream;
    const socket = await this.#connect(upstream, onread);
    const open = this.#open.get(address) ?? new Set();
    this.#open.set(address, open.add(socket));
    socket.once("close", () => {
      open.delete(socket);
      if (open.size === 0 && this.#open.get(address) === open) this.#open.delete(address);
    });
    return socket;
  }

  async #connect(upstream: Upstream, onread: net.OnReadOpts | undefined): Promise<net.Socket> {
    const { address, hasAliases } = upstream;
    const first = this.#portFor(upstream);
    try {
      return await connect(address, first, this.#connectTimeoutMs, onread);
    } catch (error) {
      if (first === daemonPort || (error as NodeJS.ErrnoException).code !== "ECONNREFUSED") throw error;
      const inside = await this.#dialInside(address, first);
      if (inside !== undefined) return inside;
      if (!hasAliases || !daemonAliases.has(first)) throw error;
      this.#remember(address, first);
      return connect(address, daemonPort, this.#connectTimeoutMs, onread);
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

/**
 * Milliseconds of silence after which a sandbox is asked whether it still knows the connection. One that was killed sends no FIN, and a client that
 * waits for the rest of an answer sends nothing that its successor could refuse.
 */
const keepAliveInitialDelay = 5_000;

function connect(host: string, port: number, timeoutMs: number, onread?: net.OnReadOpts): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay, allowHalfOpen: true };
    const socket = net.connect(onread === undefined ? options : { ...options, onread });
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
