import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { createServer, type Server, type Socket } from "node:net";
import {
  type Answer,
  AUTHORITATIVE_ANSWER,
  decode,
  encode,
  type Packet,
  RECURSION_AVAILABLE,
  RECURSION_DESIRED,
} from "dns-packet";
import type { DnsForwarder } from "./dns-forwarder.ts";
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
}

/** Answers over UDP without EDNS must fit this. */
const udpBytesMax = 1232;

/** TCP connections at once, and how long an idle one is kept. */
const tcpConnectionsMax = 256;
const tcpIdleMs = 10_000;

/** Tries to find one number that is free for both protocols. */
const anyPortTriesMax = 8;

const rcode = { noError: 0, formatError: 1, serverFailure: 2, noSuchName: 3, notImplemented: 4 } as const;

/** The resolver of every sandbox: its own zone from caches, everything else forwarded. */
export class DnsServer {
  readonly #options: DnsServerOptions;
  #udp: UdpSocket | undefined;
  #tcp: Server | undefined;
  readonly #connections = new Set<Socket>();

  constructor(options: DnsServerOptions) {
    this.#options = options;
  }

  /** Binds UDP and TCP on the same port and returns it. */
  async listen(): Promise<number> {
    const { port = 53 } = this.#options;
    for (let tries = 1; ; tries++) {
      try {
        return await this.#bind(port);
      } catch (error) {
        await this.close();
        // A port that the kernel chose for UDP may be somebody's for TCP; a port that was asked for is what it is.
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
      // An answer that cannot be sent is the asker's loss; it asks again.
    });
    udp.on("message", (query, from) => {
      this.answer(query)
        .then((response) => {
          if (response !== undefined && this.#udp === udp) udp.send(truncate(response, query), from.port, from.address);
        })
        .catch(ignoreAsker);
    });
    const bound = udp.address().port;
    const tcp = createServer((socket) => this.#serveTcp(socket));
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

  /** The answer to one query; undefined for what is not a query and deserves none. */
  async answer(query: Buffer): Promise<Buffer | undefined> {
    let packet: Packet;
    try {
      packet = decode(query);
    } catch {
      return undefined;
    }
    const [question] = packet.questions ?? [];
    if (packet.type !== "query" || question === undefined) return undefined;
    const { domain, records, forwarder } = this.#options;
    const reply = answerFromZone(question, domain, records);
    switch (reply.kind) {
      case "answers":
        return respond(packet, rcode.noError, reply.answers);
      case "no-such-name":
        return respond(packet, rcode.noSuchName, [], [startOfAuthority(domain)]);
      case "not-ours": {
        const key = `${question.type} ${question.name.toLowerCase()}`;
        return (await forwarder.resolve(query, key)) ?? respond(packet, rcode.serverFailure, []);
      }
      default:
        return reply satisfies never;
    }
  }

  #serveTcp(socket: Socket): void {
    if (this.#connections.size >= tcpConnectionsMax) {
      socket.destroy();
      return;
    }
    this.#connections.add(socket);
    socket.setTimeout(tcpIdleMs, () => socket.destroy());
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#connections.delete(socket));
    let pending: Buffer = Buffer.alloc(0);
    socket.on("data", (chunk: Buffer) => {
      pending = Buffer.concat([pending, chunk]);
      while (pending.length >= 2 && pending.length >= 2 + pending.readUInt16BE(0)) {
        const query = pending.subarray(2, 2 + pending.readUInt16BE(0));
        pending = pending.subarray(2 + query.length);
        this.answer(query)
          .then((response) => {
            if (response === undefined || socket.destroyed) return;
            const head = Buffer.alloc(2);
            head.writeUInt16BE(response.length, 0);
            socket.write(Buffer.concat([head, response]));
          })
          .catch(ignoreAsker);
      }
    });
  }
}

/** Questions come from enemies: one that cannot be answered costs its asker the answer, and nobody else anything. */
function ignoreAsker(): void {}

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

/** Too long for UDP: the head with the truncation bit, so that the asker comes back over TCP. */
function truncate(response: Buffer, query: Buffer): Buffer {
  if (response.length <= udpBytesMax) return response;
  const packet = decode(query);
  return encode({
    type: "response",
    ...(packet.id !== undefined && { id: packet.id }),
    flags: 0x0200 | RECURSION_AVAILABLE,
    questions: packet.questions ?? [],
  });
}
