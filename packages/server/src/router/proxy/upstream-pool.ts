import type { Clock } from "@agent-sandbox/kube";
import { type Dialer, type Upstream, upstreamKey } from "./dial.ts";
import type { Outbox } from "./outbox.ts";
import { UpstreamConnection } from "./upstream-connection.ts";

/**
 * Idle connections kept per sandbox port, and for how long; an idle one costs a descriptor on both sides. Of more callers
 * at once than this, each round would dial anew for those above it, which costs twice what a request does.
 */
const idlePerPortMax = 256;
const idleMsMax = 30_000;
/** In all; the one that is idle longest goes first. */
const idleMax = 1024;

/**
 * Servers close idle connections after five seconds or more. A request that must not be sent twice takes only a connection
 * that was used well within that time, so that it never meets one that is just being closed.
 */
const freshMs = 3_000;

/**
 * Where the system puts what it reads from any sandbox, one read at a time; it is copied out before the next. A read of its
 * own would take 64 KiB for an answer of a few hundred bytes.
 */
const landing = Buffer.allocUnsafeSlow(64 * 1024);

/** Keeps connections to sandboxes open between requests; new ones come from the dialer, fallback included. */
export class UpstreamPool {
  readonly #dialer: Dialer;
  readonly #outbox: Outbox;
  readonly #clock: Clock;
  /** Idle connections by `upstreamKey`, the most recently used last. */
  readonly #idle = new Map<string, UpstreamConnection[]>();
  readonly #sweeper: NodeJS.Timeout;
  #idleCount = 0;
  #isClosed = false;

  constructor(dialer: Dialer, outbox: Outbox, clock: Clock) {
    this.#dialer = dialer;
    this.#outbox = outbox;
    this.#clock = clock;
    this.#sweeper = setInterval(() => this.#sweep(), idleMsMax / 4).unref();
  }

  /** An idle connection, or undefined. `isRepeatable` says that the request could be sent again without harm. */
  take(upstream: Upstream, isRepeatable: boolean): UpstreamConnection | undefined {
    const idle = this.#idle.get(upstreamKey(upstream));
    const connection = idle?.at(-1);
    if (idle === undefined || connection === undefined) return undefined;
    if (!isRepeatable && this.#clock.nowMs() - connection.idleSinceMs > freshMs) return undefined;
    idle.pop();
    this.#idleCount -= 1;
    return connection;
  }

  /** A new connection; rejects as the dialer does. */
  async open(upstream: Upstream): Promise<UpstreamConnection> {
    // The first read comes in a later turn of the event loop than the connection: nothing is missed until then.
    let connection: UpstreamConnection | undefined;
    const callback = (sizeBytes: number): boolean => {
      connection?.take(Buffer.from(landing.subarray(0, sizeBytes)));
      return true;
    };
    const socket = await this.#dialer.dial(upstream, { buffer: landing, callback });
    const key = upstreamKey(upstream);
    connection = new UpstreamConnection(socket, this.#outbox, {
      idle: (idle) => this.#keep(key, idle),
      gone: (gone) => this.#forget(key, gone),
    });
    return connection;
  }

  /** Gives up idle connections to an address behind which another Pod will be: no packet tells them that theirs is gone. */
  forget(address: string): void {
    for (const [key, idle] of this.#idle) {
      if (!key.startsWith(`${address}:`)) continue;
      this.#idle.delete(key);
      this.#idleCount -= idle.length;
      for (const connection of idle) connection.abort();
    }
  }

  /** Ends idle connections; those in use end with their exchanges. */
  close(): void {
    this.#isClosed = true;
    clearInterval(this.#sweeper);
    for (const idle of this.#idle.values()) for (const connection of idle) connection.abort();
  }

  #keep(key: string, connection: UpstreamConnection): void {
    const idle = this.#idle.get(key) ?? [];
    if (this.#isClosed || idle.length >= idlePerPortMax) return connection.abort();
    if (this.#idleCount >= idleMax) this.#sweep(0);
    connection.idleSinceMs = this.#clock.nowMs();
    connection.resume();
    idle.push(connection);
    this.#idleCount += 1;
    if (idle.length === 1) this.#idle.set(key, idle);
  }

  #forget(key: string, connection: UpstreamConnection): void {
    const idle = this.#idle.get(key);
    const index = idle?.indexOf(connection) ?? -1;
    if (idle === undefined || index === -1) return;
    idle.splice(index, 1);
    this.#idleCount -= 1;
    if (idle.length === 0) this.#idle.delete(key);
  }

  #sweep(ageMs = idleMsMax): void {
    const limitMs = this.#clock.nowMs() - ageMs;
    for (const [key, idle] of this.#idle) {
      if (idle.length === 0) this.#idle.delete(key);
      // An aborted connection leaves the list when its socket has closed, which is not within this loop.
      for (const connection of idle) if (connection.idleSinceMs <= limitMs) connection.abort();
    }
  }
}
