import { type Clock, delay, prioritized, type Transport } from "@agent-sandbox/kube";
import { requestPriority } from "../request-priority.ts";
import type { ControllerFlagValues } from "./flags.ts";

/** The flags that say how the process reaches the API server. */
export type TransportFlags = Pick<
  ControllerFlagValues,
  "kube-api-qps" | "kube-api-burst" | "api-connections" | "separate-watch-connection"
>;

/** The process's way to the API server; `open` makes one connection, opened on first use. All clients must share the result. */
export function controllerTransport(flags: TransportFlags, open: () => Transport, clock: Clock): Transport {
  const watches = flags["separate-watch-connection"] ? open() : undefined;
  const requests = sharded(Array.from({ length: flags["api-connections"] }, open));
  const split = watches === undefined ? requests : splitting(requests, watches);
  const perSecond = flags["kube-api-qps"];
  const paced = perSecond > 0 ? limited(split, new TokenBucket(perSecond, flags["kube-api-burst"], clock)) : split;
  return prioritized(paced, { ...requestPriority, clock });
}

/** Spreads requests evenly: a server allows a connection only so many streams at once. */
function sharded(transports: readonly Transport[]): Transport {
  const [only] = transports;
  if (only !== undefined && transports.length === 1) return only;
  let turn = 0;
  const next = (): Transport => {
    turn = (turn + 1) % transports.length;
    const transport = transports[turn];
    if (transport === undefined) throw new Error("bug: no connection");
    return transport;
  };
  return {
    request: (request) => next().request(request),
    upgrade: (request) => next().upgrade(request),
    close: async () => void (await Promise.all(transports.map((transport) => transport.close()))),
  };
}

/** Watches and the lists of informers go their own way, so that their long answers and a burst of writes do not queue behind each other. */
function splitting(requests: Transport, watches: Transport): Transport {
  return {
    request: (request) => (request.priority === "stream" ? watches : requests).request(request),
    upgrade: (request) => requests.upgrade(request),
    close: async () => void (await Promise.all([requests.close(), watches.close()])),
  };
}

/** Every request waits for its turn; an answer that takes long, a watch, delays no other request. */
function limited(transport: Transport, bucket: TokenBucket): Transport {
  return {
    request: async (request) => {
      await bucket.take(request.signal ?? never);
      return transport.request(request);
    },
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  };
}

const never = new AbortController().signal;

/** So many at once, then so many per second. Bound: as many waiters as there are requests in flight, which workers bound. */
class TokenBucket {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #clock: Clock;
  /** Negative: this many are waiting for their turn. */
  #tokens: number;
  #countedMs: number;

  constructor(perSecond: number, burst: number, clock: Clock) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#clock = clock;
    this.#tokens = burst;
    this.#countedMs = clock.nowMs();
  }

  async take(signal: AbortSignal): Promise<void> {
    const nowMs = this.#clock.nowMs();
    const earned = ((nowMs - this.#countedMs) / 1_000) * this.#perSecond;
    this.#tokens = Math.min(this.#burst, this.#tokens + Math.max(0, earned)) - 1;
    this.#countedMs = nowMs;
    if (this.#tokens < 0) await delay(this.#clock, (-this.#tokens / this.#perSecond) * 1_000, signal);
  }
}
