import { FakeClock } from "@agent-sandbox/kube";
import { decode, encode } from "dns-packet";
import { DnsForwarder } from "../../../packages/server/src/node/dns/dns-forwarder.ts";
import { DnsServer } from "../../../packages/server/src/node/dns/dns-server.ts";
import type { ZoneRecords } from "../../../packages/server/src/node/dns/dns-zone.ts";
import { type FuzzTarget, promise } from "../fuzz-target.ts";

const records: ZoneRecords = {
  sandbox: (_namespace, name) => (name === "box" ? "10.200.0.9" : undefined),
  service: (_namespace, name) =>
    name === "web"
      ? { clusterIp: "10.201.0.1", endpoints: [], ports: [{ name: "http", protocol: "TCP", port: 80 }] }
      : undefined,
  hasPod: () => true,
};

const server = new DnsServer({
  address: "127.0.0.1",
  port: 0,
  domain: "cluster.local",
  records,
  forwarder: new DnsForwarder({ resolvers: [], clock: new FakeClock() }),
});

const query = (name: string, type: "A" | "AAAA" | "SRV" | "TXT"): Uint8Array =>
  encode({ type: "query", id: 7, flags: 0x0100, questions: [{ type, name }] });

/** What a sandbox asks its resolver. */
export const dnsQuery: FuzzTarget = {
  name: "dns-query",
  seeds: [
    query("box.default.svc.cluster.local", "A"),
    query("_http._tcp.web.default.svc.cluster.local", "SRV"),
    query("10-200-0-9.default.pod.cluster.local", "A"),
    query("example.org", "AAAA"),
    encode({
      type: "query",
      id: 1,
      questions: [],
      additionals: [{ type: "OPT", name: ".", udpPayloadSize: 4096 } as never],
    }),
  ],
  dictionary: ["\xc0\x0c", "\xc0\x00", "\x00\x29", "\x00\xff", "\x3f", "\x05local\x00", "\x03svc", "\x00\x01\x00\x03"],
  async run(input) {
    const response = await server.answer(input);
    if (response === undefined) return;
    // An answer that its asker cannot read is a lookup that hangs until its time is over.
    const packet = decode(response);
    promise(packet.type === "response", "an answer is a response");
    promise(response.readUInt16BE(0) === input.readUInt16BE(0), "an answer has the id of its question");
    promise(response.length <= 0xffff, "an answer fits its length field");
  },
};
