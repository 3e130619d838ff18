import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { FakeClock } from "@agent-sandbox/kube";
import { type Answer, decode, encode, type Packet, type Question } from "dns-packet";
import { DnsForwarder } from "../dns-forwarder.ts";
import { DnsServer } from "../dns-server.ts";
import type { ZoneRecords } from "../dns-zone.ts";

/** What an upstream resolver of a test says to a query: the rest of a packet, or nothing. */
export type Script = (query: Packet, question: Question) => Partial<Packet> | undefined;

/** A DNS server on loopback with a resolver behind it that answers by a script. */
export class DnsWorld implements AsyncDisposable {
  readonly clock = new FakeClock(1_000_000);
  readonly asked: Question[] = [];
  readonly server: DnsServer;
  port = 0;
  readonly #upstream: Socket;

  private constructor(upstream: Socket, records: ZoneRecords) {
    this.#upstream = upstream;
    const resolvers = [`127.0.0.1:${upstream.address().port}`];
    const forwarder = new DnsForwarder({ resolvers, clock: this.clock });
    const shared = { address: "0.0.0.0", port: 0, domain: "cluster.local", clock: this.clock };
    this.server = new DnsServer({ ...shared, records, forwarder, tenantOf: (address) => address });
  }

  static async open(script: Script, records: ZoneRecords = noRecords): Promise<DnsWorld> {
    const upstream = createSocket("udp4");
    await new Promise<void>((resolve) => upstream.bind(0, "127.0.0.1", () => resolve()));
    const world = new DnsWorld(upstream, records);
    upstream.on("message", (message, from) => world.#reply(script, message, from));
    world.port = await world.server.listen();
    return world;
  }

  /** Asks from one address of this machine; resolves with the answer. */
  async ask(
    question: Question,
    { from = "127.0.0.1", ...rest }: Partial<Packet> & { from?: string } = {},
  ): Promise<Packet> {
    const socket = createSocket("udp4");
    await new Promise<void>((resolve) => socket.bind(0, from, () => resolve()));
    return new Promise((resolve) => {
      socket.on("message", (message) => {
        socket.close();
        resolve(decode(message));
      });
      socket.send(
        encode({ type: "query", id: 7, flags: 0x0100, questions: [question], ...rest }),
        this.port,
        "127.0.0.1",
      );
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.close();
    await new Promise<void>((resolve) => this.#upstream.close(() => resolve()));
  }

  #reply(script: Script, message: Buffer, from: RemoteInfo): void {
    const query = decode(message);
    const [question] = query.questions ?? [];
    if (question === undefined) return;
    this.asked.push(question);
    const rest = script(query, question);
    if (rest === undefined) return;
    const packet: Packet = { type: "response", id: query.id ?? 0, questions: query.questions ?? [], ...rest };
    this.#upstream.send(encode(packet), from.port, from.address);
  }
}

const noRecords: ZoneRecords = { sandbox: () => undefined, service: () => undefined, hasPod: () => false };

/** An address record. */
export function addressOf(name: string, data: string, ttl = 60): Answer {
  return { type: "A", name, ttl, data };
}

/** The start of authority of a zone, with how long what it lacks may be remembered. */
export function authorityOf(name: string, minimum: number): Answer {
  const data = { mname: `ns.${name}`, rname: `host.${name}`, serial: 1, refresh: 1, retry: 1, expire: 1, minimum };
  return { type: "SOA", name, ttl: 3600, data };
}
