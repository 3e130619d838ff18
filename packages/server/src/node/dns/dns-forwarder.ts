import { createSocket } from "node:dgram";
import { connect } from "node:net";
import type { Clock } from "@agent-sandbox/kube";
import { decode, type Packet, streamEncode } from "dns-packet";

/** Entries kept at most; the oldest leaves first. */
const cacheEntriesMax = 10_000;

/** Longest time an answer is kept, whatever its owner says. */
const cacheTtlMaxMs = 300_000;

/** How long a failure or an empty answer is kept. */
const negativeTtlMs = 5_000;

/** How long one resolver may take before the next is asked. */
const resolverTimeoutMs = 2_000;

/** Questions under way at once. Full: the asker is told to try later, so that one sandbox cannot exhaust the node. */
const inFlightMax = 512;

interface CacheEntry {
  readonly response: Buffer;
  readonly untilMs: number;
}

/** Where to forward to. */
export interface DnsForwarderOptions {
  /** `address` or `address:port`, asked in order. */
  readonly resolvers: readonly string[];
  readonly clock: Clock;
}

/** Asks the machine's resolvers and remembers what they say. */
export class DnsForwarder {
  readonly #options: DnsForwarderOptions;
  readonly #cache = new Map<string, CacheEntry>();
  #inFlight = 0;

  constructor(options: DnsForwarderOptions) {
    this.#options = options;
  }

  /** The resolver's answer with the asker's id; undefined when nobody answers. */
  async resolve(query: Buffer, key: string): Promise<Buffer | undefined> {
    const nowMs = this.#options.clock.nowMs();
    const cached = this.#cache.get(key);
    if (cached !== undefined && cached.untilMs > nowMs) return withId(cached.response, query);
    if (this.#inFlight >= inFlightMax) return undefined;
    this.#inFlight += 1;
    try {
      for (const resolver of this.#options.resolvers) {
        const response = await ask(resolver, query).catch(() => undefined);
        if (response === undefined) continue;
        this.#remember(key, response, nowMs);
        return withId(response, query);
      }
      return undefined;
    } finally {
      this.#inFlight -= 1;
    }
  }

  #remember(key: string, response: Buffer, nowMs: number): void {
    const ttlMs = ttlOf(response);
    if (ttlMs === undefined) return;
    if (this.#cache.size >= cacheEntriesMax) {
      const [oldest] = this.#cache.keys();
      if (oldest !== undefined) this.#cache.delete(oldest);
    }
    this.#cache.delete(key);
    this.#cache.set(key, { response, untilMs: nowMs + ttlMs });
  }
}

function ttlOf(response: Buffer): number | undefined {
  let packet: Packet;
  try {
    packet = decode(response);
  } catch {
    return undefined;
  }
  const ttls = (packet.answers ?? []).flatMap((answer) =>
    "ttl" in answer && typeof answer.ttl === "number" ? [answer.ttl] : [],
  );
  if (ttls.length === 0) return negativeTtlMs;
  return Math.min(cacheTtlMaxMs, Math.min(...ttls) * 1000);
}

function withId(response: Buffer, query: Buffer): Buffer {
  const copy = Buffer.from(response);
  query.copy(copy, 0, 0, 2);
  return copy;
}

async function ask(resolver: string, query: Buffer): Promise<Buffer> {
  const [, address = resolver, port = "53"] = /^(.*?)(?::(\d+))?$/.exec(resolver) ?? [];
  const response = await askUdp(address, Number(port), query);
  // The truncation bit: the whole answer is to be had over TCP.
  return ((response[2] ?? 0) & 0x02) !== 0 ? askTcp(address, Number(port), query) : response;
}

function askUdp(address: string, port: number, query: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = createSocket("udp4");
    let isOver = false;
    const finish = (settle: () => void): void => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      socket.close();
      settle();
    };
    const timer = setTimeout(
      () => finish(() => reject(new Error(`resolver ${address} did not answer`))),
      resolverTimeoutMs,
    );
    socket.on("error", (error) => finish(() => reject(error)));
    const sendOrFail = (error?: Error): void => {
      // Without a route the kernel refuses the connection, and Node calls this with the reason.
      if (error !== undefined) finish(() => reject(error));
      else if (!isOver) socket.send(query);
    };
    // A connected socket takes answers from nobody else, and its port is chosen at random by the kernel.
    socket.connect(port, address, sendOrFail);
    socket.on("message", (message) => {
      if (message.length < 12 || message.readUInt16BE(0) !== query.readUInt16BE(0)) return;
      finish(() => resolve(message));
    });
  });
}

function askTcp(address: string, port: number, query: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port });
    socket.setTimeout(resolverTimeoutMs, () => socket.destroy(new Error(`resolver ${address} did not answer`)));
    let bytes = Buffer.alloc(0);
    socket.on("error", reject);
    socket.on("close", () => reject(new Error(`resolver ${address} closed the connection`)));
    socket.on("connect", () => socket.write(streamEncode(decode(query))));
    socket.on("data", (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      if (bytes.length < 2 || bytes.length < 2 + bytes.readUInt16BE(0)) return;
      resolve(bytes.subarray(2, 2 + bytes.readUInt16BE(0)));
      socket.destroy();
    });
  });
}
