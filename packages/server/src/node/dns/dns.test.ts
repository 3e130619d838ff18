import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect } from "node:net";
import { FakeClock, seededRandom } from "@agent-sandbox/kube";
import { decode, encode, type Packet, streamDecode, streamEncode } from "dns-packet";
import { afterEach, expect, test } from "vitest";
import { DnsForwarder } from "./dns-forwarder.ts";
import { DnsServer } from "./dns-server.ts";
import { answerFromZone, type ZoneRecords } from "./dns-zone.ts";

const records: ZoneRecords = {
  sandbox: (namespace, name) => (namespace === "default" && name === "box" ? "10.200.0.9" : undefined),
  service: (_namespace, name) => {
    if (name === "web")
      return { clusterIp: "10.201.0.1", endpoints: [], ports: [{ name: "http", protocol: "TCP", port: 80 }] };
    if (name === "db") return { endpoints: [{ address: "10.200.0.5", hostname: "db-0" }], ports: [] };
    return undefined;
  },
  hasPod: (namespace, address) => namespace === "default" && address === "10.200.0.5",
};

const servers: DnsServer[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function listen(resolvers: string[] = []): Promise<number> {
  const server = serverWith(resolvers);
  servers.push(server);
  return server.listen();
}

function serverWith(resolvers: string[]): DnsServer {
  const clock = new FakeClock();
  const forwarder = new DnsForwarder({ resolvers, clock });
  const shared = { address: "127.0.0.1", port: 0, domain: "cluster.local", clock };
  return new DnsServer({ ...shared, records, forwarder, tenantOf: () => "default" });
}

function askUdp(port: number, name: string, type: "A" | "AAAA" = "A"): Promise<Packet> {
  const socket = createSocket("udp4");
  return new Promise((resolve) => {
    socket.on("message", (message) => {
      socket.close();
      resolve(decode(message));
    });
    socket.send(encode({ type: "query", id: 7, flags: 0x0100, questions: [{ type, name }] }), port, "127.0.0.1");
  });
}

test("DnsServer: what comes before it serves is dropped unread", async () => {
  const server = serverWith([]);
  servers.push(server);
  const port = await server.bind();
  const name = "box.default.svc.cluster.local";
  const early = createSocket("udp4");
  let answers = 0;
  early.on("message", () => (answers += 1));
  early.send(encode({ type: "query", id: 7, questions: [{ type: "A", name }] }), port, "127.0.0.1");
  const refused = connect(port, "127.0.0.1").on("error", () => undefined);
  await once(refused, "close");
  server.serve();
  expect((await askUdp(port, name)).answers).toHaveLength(1);
  expect(answers).toBe(0);
  early.close();
});

test.each([
  ["box.default.svc.cluster.local", ["10.200.0.9"]],
  ["BOX.default.svc.cluster.local.", ["10.200.0.9"]],
  ["web.default.svc.cluster.local", ["10.201.0.1"]],
  ["db.default.svc.cluster.local", ["10.200.0.5"]],
  ["db-0.db.default.svc.cluster.local", ["10.200.0.5"]],
  ["10-200-0-5.default.pod.cluster.local", ["10.200.0.5"]],
])("answerFromZone: %s has its address", (name, expected) => {
  const reply = answerFromZone({ name, type: "A" }, "cluster.local", records);
  expect(
    reply.kind === "answers" && reply.answers.map((answer) => ("data" in answer ? answer.data : undefined)),
  ).toEqual(expected);
});

test.each([
  "none.default.svc.cluster.local",
  "10-200-0-6.default.pod.cluster.local",
  "db-1.db.default.svc.cluster.local",
  "x.cluster.local",
])("answerFromZone: %s does not exist", (name) => {
  expect(answerFromZone({ name, type: "A" }, "cluster.local", records)).toEqual({ kind: "no-such-name" });
});

test("answerFromZone: a name with IPv4 alone has no AAAA, which is no error", () => {
  expect(answerFromZone({ name: "box.default.svc.cluster.local", type: "AAAA" }, "cluster.local", records)).toEqual({
    kind: "answers",
    answers: [],
  });
});

test("answerFromZone: SRV names the port of a service", () => {
  const reply = answerFromZone(
    { name: "_http._tcp.web.default.svc.cluster.local", type: "SRV" },
    "cluster.local",
    records,
  );
  expect(reply.kind === "answers" && reply.answers[0]).toMatchObject({
    type: "SRV",
    data: { port: 80, target: "web.default.svc.cluster.local" },
  });
});

test("DnsServer: answers over UDP with the asker's id", async () => {
  const answer = await askUdp(await listen(), "box.default.svc.cluster.local");
  expect(answer.id).toBe(7);
  expect(answer.answers).toMatchObject([{ type: "A", data: "10.200.0.9" }]);
});

test("DnsServer: answers over TCP, two questions on one connection", async () => {
  const port = await listen();
  const socket = connect({ host: "127.0.0.1", port });
  const query = streamEncode({
    type: "query",
    id: 1,
    questions: [{ type: "A", name: "web.default.svc.cluster.local" }],
  });
  socket.write(Buffer.concat([query, query]));
  let bytes = Buffer.alloc(0);
  for await (const chunk of socket) {
    bytes = Buffer.concat([bytes, chunk as Buffer]);
    if (bytes.length >= 2 * (2 + bytes.readUInt16BE(0))) break;
  }
  socket.destroy();
  expect(streamDecode(bytes)?.answers).toMatchObject([{ data: "10.201.0.1" }]);
});

test("DnsServer: forwards other names once and then answers from its cache", async () => {
  let asked = 0;
  const upstream = createSocket("udp4");
  upstream.on("message", (message, from) => {
    asked += 1;
    const query = decode(message);
    upstream.send(
      encode({
        type: "response",
        id: query.id ?? 0,
        questions: query.questions ?? [],
        answers: [{ type: "A", name: "example.org", ttl: 60, data: "192.0.2.1" }],
      }),
      from.port,
    );
  });
  await new Promise<void>((resolve) => upstream.bind(0, "127.0.0.1", () => resolve()));
  const port = await listen([`127.0.0.1:${upstream.address().port}`]);
  expect((await askUdp(port, "example.org")).answers).toMatchObject([{ data: "192.0.2.1" }]);
  expect((await askUdp(port, "EXAMPLE.org")).answers).toMatchObject([{ data: "192.0.2.1" }]);
  upstream.close();
  expect(asked).toBe(1);
});

test("DnsServer: says that it failed when no resolver answers", async () => {
  const { flags = 0 } = await askUdp(await listen(), "example.org");
  expect(flags & 0x0f).toBe(2);
});

test("DnsServer: what is not a query gets no answer", async () => {
  expect(await serverWith([]).answer(Buffer.from("garbage"), "127.0.0.1")).toBeUndefined();
});

test("DnsServer: a name of bytes that no name of the zone has does not exist, and is repeated to the byte", async () => {
  for (const label of ["\xf3v.", "a b", "\xc3\xa4", "."]) {
    const labels = [label, "default", "svc", "cluster", "local"];
    const name = Buffer.concat(
      labels.map((one) => Buffer.concat([Buffer.of(one.length), Buffer.from(one, "latin1")])).concat(Buffer.of(0)),
    );
    const head = Buffer.from("000701000001000000000000", "hex");
    const query = Buffer.concat([head, name, Buffer.of(0, 1, 0, 1)]);
    const response = await serverWith([]).answer(query, "10.200.0.7");
    expect(response && decode(response)).toMatchObject({ type: "response", rcode: "NXDOMAIN" });
    expect(response?.subarray(12)).toEqual(query.subarray(12));
  }
});

test("DnsServer: a resolver that the kernel has no way to costs the answer and nothing else", async () => {
  // A connection to the broadcast address needs SO_BROADCAST: the kernel refuses at once, as it does without a route.
  const port = await listen(["255.255.255.255"]);
  expect(((await askUdp(port, "example.org")).flags ?? 0) & 0x0f).toBe(2);
  expect((await askUdp(port, "box.default.svc.cluster.local")).answers).toHaveLength(1);
});

test("DnsServer: no question of an enemy is more than an answer or none", async () => {
  const server = serverWith([]);
  const random = seededRandom(20_260_905);
  const name = "_http._tcp.web.default.svc.cluster.local";
  const whole = encode({ type: "query", id: 1, questions: [{ type: "SRV", name }] });
  for (let round = 0; round < 2_000; round++) {
    const bytes = Buffer.from(whole);
    for (let flips = 0; flips < 4; flips++) bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    const answer = await server.answer(bytes, "127.0.0.1");
    expect(answer === undefined || Buffer.isBuffer(answer), bytes.toString("hex")).toBe(true);
  }
});
