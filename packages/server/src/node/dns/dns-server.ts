import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { createServer, type Server, type Socket } from "node:net";
import { type Clock, FairLimit, TokenBuckets } from "@agent-sandbox/kube";
import {
  type Answer,
  AUTHORITATIVE_ANSWER,
  decode,
  encode,
  type Packet,
  RECURSION_AVAILABLE,
  RECURSION_DESIRED,
} from "dns-packet";
import { udpBytesMax } from "./ask-resolver.ts";
import type { DnsForwarder } from "./dns-forwarder.ts";
import {
  bareAnswer,
  bareRefusal,
  type DnsQuestion,
  dnsClass,
  dnsType,
  rcode,
  truncatedAnswer,
  tryParseQuery,
} from "./dns-message.ts";
import { serveDnsConnection } from "./dns-tcp.ts";
import { answerFromZone, type ZoneRecords, zoneTtlSeconds } from "./dns-zone.ts";

/** Where the server listens and what it knows. */
export interface DnsServerOptions {
  readonly address: string;
  /** Default 53; 0 takes any. */
  readonly port?: number;
  /** For example `cluster.local`. */
  readonly domain: string;
  readonly records: ZoneRecords;
  readonly forwarder: DnsForwarder;
  readonly clock: Clock;
  /** Whose the sandbox with an address is; answers are kept for each tenant apart. */
  readonly tenantOf: (address: string) => string;
}

/** Questions that wait for a resolver. Full: the asker gets SERVFAIL. */
const waitingLimits = { perHolderMax: 64, totalMax: 512, guaranteed: 4 };

/** TCP connections. Full: the connection is reset. */
const connectionLimits = { perHolderMax: 8, totalMax: 128, guaranteed: 1 };

/** Questions of one sandbox: more than any installer asks, a small part of what this process can answer. Over it a datagram is dropped and a connection waits. */
const rateLimits = { perSecond: 500, burst: 1_000 };

/** How long a question over TCP waits when its sandbox asks too fast. */
const overRateMs = 10;

/** Bytes of datagrams that the kernel has not taken; more answers are dropped, and asked for again. */
const sendQueueBytesMax = 1024 * 1024;

/** What names of the zone consist of: labels of host names, and of services' ports with their underscore. */
const zoneName = /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/;

/** Tries to find one number that is free for both protocols. */
const anyPortTriesMax = 8;

/** The resolver of every sandbox: its own zone from caches, everything else forwarded. */
export class DnsServer {
  readonly #options: DnsServerOptions;
  #udp: UdpSocket | undefined;
  #tcp: Server | undefined;
  readonly #connections = new Set<Socket>();
  readonly #waiting = new FairLimit(waitingLimits);
  readonly #connected = new FairLimit(connectionLimits);
  readonly #rate = new TokenBuckets(rateLimits);
  #isServing = false;

  constructor(options: DnsServerOptions) {
    this.#options = options;
  }

  /** Binds UDP and TCP on the same port, serves, and returns it. */
  async listen(): Promise<number> {
    const port = await this.bind();
    this.serve();
    return port;
  }

  /** From here on what sandboxes send is read. Preconditions: `bind` has resolved. */
  serve(): void {
    this.#isServing = true;
  }

  /** Binds UDP and TCP on the same port and returns it. What comes before `serve` is dropped unread: a low port is bound by root, and root reads nothing of a sandbox's. */
  async bind(): Promise<number> {
    const { port = 53 } = this.#options;
    for (let tries = 1; ; tries++) {
      try {
        return await this.#bind(port);
      } catch (error) {
        await this.close();
        // A port that the kernel chose for UDP may be taken for TCP; a port that was asked for is what it is.
        if (port !== 0 || tries === anyPortTriesMax) throw error;
      }
    }
  }

  async #bind(port: number): Promise<number> {
    const { address } = this.#options;
    const udp = createSocket("udp4");
    this.#udp = udp;
    await new Promise<void>((resolve, reject) => {
      udp.once("error", reject);
      udp.bind(port, address, () => resolve());
    });
    udp.on("error", () => {
      // An answer that cannot be sent is dropped; resolvers in sandboxes ask again after their timeout.
    });
    udp.on("message", (query, from) => {
      if (!this.#isServing || !this.#rate.tryTake(from.address, this.#options.clock.nowMs())) return;
      this.#answerDatagram(udp, query, from).catch(ignoreAsker);
    });
    const bound = udp.address().port;
    const tcp = createServer((socket) => (this.#isServing ? this.#serveTcp(socket) : socket.destroy()));
    await new Promise<void>((resolve, reject) => {
      tcp.once("error", reject);
      tcp.listen(bound, address, () => resolve());
    });
    this.#tcp = tcp;
    return bound;
  }

  async close(): Promise<void> {
    for (const socket of this.#connections) socket.destroy();
    const [udp, tcp] = [this.#udp, this.#tcp];
    this.#udp = undefined;
    this.#tcp = undefined;
    await Promise.all([
      new Promise<void>((resolve) => (udp === undefined ? resolve() : udp.close(() => resolve()))),
      new Promise<void>((resolve) => (tcp === undefined ? resolve() : tcp.close(() => resolve()))),
    ]);
  }

  /** The answer to one query of a sandbox; undefined for what is not a query and deserves none. */
  async answer(query: Buffer, source: string): Promise<Buffer | undefined> {
    const parsed = tryParseQuery(query);
    if (parsed === undefined) return undefined;
    if (parsed.kind === "refused") return bareRefusal(parsed.id, parsed.code);
    const { question } = parsed;
    const isTransfer = question.type >= dnsType.transferFirst && question.type <= dnsType.transferLast;
    if (question.class !== dnsClass.internet || isTransfer) return bareAnswer(question, rcode.refused);
    return this.#answerFromZone(query, question) ?? this.#forward(question, source);
  }

  #answerFromZone(query: Buffer, question: DnsQuestion): Buffer | undefined {
    const { domain, records } = this.#options;
    if (question.name !== domain && !question.name.endsWith(`.${domain}`)) return undefined;
    // A label with another byte is the name of nothing here, and its text would not give the same bytes again.
    if (!zoneName.test(question.name)) return bareAnswer(question, rcode.noSuchName);
    let packet: Packet;
    try {
      packet = decode(query);
    } catch {
      return bareAnswer(question, rcode.formatError);
    }
    const [asked] = packet.questions ?? [];
    const reply = asked === undefined ? undefined : answerFromZone(asked, domain, records);
    switch (reply?.kind) {
      case "answers":
        return respond(packet, rcode.noError, reply.answers);
      case "no-such-name":
        return respond(packet, rcode.noSuchName, [], [startOfAuthority(domain)]);
      case "not-ours":
      case undefined:
        return undefined;
      default:
        return reply satisfies never;
    }
  }

  async #forward(question: DnsQuestion, source: string): Promise<Buffer> {
    const { forwarder, tenantOf } = this.#options;
    const tenant = tenantOf(source);
    const kept = forwarder.cached(question, tenant);
    if (kept !== undefined) return kept;
    if (!this.#waiting.tryTake(source)) return bareAnswer(question, rcode.serverFailure);
    try {
      return (await forwarder.resolve(question, tenant)) ?? bareAnswer(question, rcode.serverFailure);
    } finally {
      this.#waiting.give(source);
    }
  }

  async #answerDatagram(
    udp: UdpSocket,
    query: Buffer,
    from: { readonly address: string; readonly port: number },
  ): Promise<void> {
    const response = await this.answer(query, from.address);
    if (response === undefined || this.#udp !== udp || udp.getSendQueueSize() > sendQueueBytesMax) return;
    udp.send(response.length <= udpBytesMax ? response : truncated(query), from.port, from.address);
  }

  #serveTcp(socket: Socket): void {
    const source = socket.remoteAddress;
    if (source === undefined || !this.#connected.tryTake(source)) {
      socket.on("error", ignoreAsker);
      socket.resetAndDestroy();
      return;
    }
    this.#connections.add(socket);
    socket.once("close", () => {
      this.#connections.delete(socket);
      this.#connected.give(source);
    });
    void serveDnsConnection(socket, async (query) => {
      while (!this.#rate.tryTake(source, this.#options.clock.nowMs()) && !socket.destroyed) await pause(overRateMs);
      return this.answer(query, source);
    });
  }
}

/** Questions come from hostile code: one that cannot be answered costs its asker the answer, and does not end the server. */
function ignoreAsker(): void {}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}

function respond(query: Packet, code: number, answers: readonly Answer[], authorities: readonly Answer[] = []): Buffer {
  return encode({
    type: "response",
    ...(query.id !== undefined && { id: query.id }),
    flags: AUTHORITATIVE_ANSWER | RECURSION_AVAILABLE | ((query.flags ?? 0) & RECURSION_DESIRED) | code,
    questions: query.questions ?? [],
    answers: [...answers],
    authorities: [...authorities],
  });
}

function startOfAuthority(domain: string): Answer {
  const data = {
    mname: `ns.dns.${domain}`,
    rname: `hostmaster.${domain}`,
    serial: 1,
    refresh: 7200,
    retry: 1800,
    expire: 86_400,
    minimum: zoneTtlSeconds,
  };
  return { type: "SOA", name: domain, ttl: zoneTtlSeconds, data };
}

/** Preconditions: the query had an answer, so it can be read. */
function truncated(query: Buffer): Buffer {
  const parsed = tryParseQuery(query);
  return parsed?.kind === "question" ? truncatedAnswer(parsed.question) : Buffer.alloc(0);
}
