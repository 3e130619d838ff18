import { createSocket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { StreamWriter, seededRandom } from "@agent-sandbox/kube";
import { encode, type Question, streamEncode } from "dns-packet";
import { expect, test } from "vitest";
import { DnsCache } from "./dns-cache.ts";
import { bareAnswer, type DnsQuestion, isAnswerTo, tryParseQuery, tryReadRecords } from "./dns-message.ts";
import { serveDnsConnection } from "./dns-tcp.ts";
import { addressOf, authorityOf, DnsWorld } from "./testing/dns-world.ts";

const inClass = (name: string, type: Question["type"] = "A", kind = "IN"): Question =>
  ({ type, name, class: kind }) as Question;
const codeOf = ({ flags = 0 }: { flags?: number | undefined }): number => flags & 0x0f;
const answers =
  (data: string) =>
  (_query: unknown, { name }: Question) => ({ answers: [addressOf(name, data)] });

function parsed(name: string): DnsQuestion {
  const query = tryParseQuery(encode({ type: "query", id: 1, questions: [inClass(name)] }));
  if (query?.kind !== "question") throw new Error("not a question");
  return query.question;
}

test("DNS cache: a question of another class answers no neighbour's lookup", async () => {
  await using world = await DnsWorld.open((query, question) =>
    question.class === "IN" ? answers("192.0.2.1")(query, question) : { flags: 5 },
  );
  expect(codeOf(await world.ask(inClass("example.org", "A", "CH")))).toBe(5);
  expect((await world.ask(inClass("example.org"), { from: "127.0.0.2" })).answers).toMatchObject([
    { data: "192.0.2.1" },
  ]);
  expect(world.asked.map(({ class: kind }) => kind)).toEqual(["IN"]);
});

test("DNS cache: an asker who wants signatures does not get the answer without them", async () => {
  await using world = await DnsWorld.open((query, { name }) => ({
    answers: [addressOf(name, query.additionals?.length === 1 ? "192.0.2.2" : "192.0.2.1")],
  }));
  const opt = {
    type: "OPT",
    name: ".",
    udpPayloadSize: 1232,
    extendedRcode: 0,
    ednsVersion: 0,
    flags: 0x8000,
    flag_do: true,
    options: [],
  };
  expect((await world.ask(inClass("example.org"))).answers).toMatchObject([{ data: "192.0.2.1" }]);
  expect((await world.ask(inClass("example.org"), { additionals: [opt as never] })).answers).toMatchObject([
    { data: "192.0.2.2" },
  ]);
});

test.each([
  ["a failure", { flags: 2 }, 2],
  ["a refusal", { flags: 5 }, 2],
  ["no answer without a start of authority", {}, 2],
  ["no such name without a start of authority", { flags: 3 }, 2],
  ["no such name with one", { flags: 3, authorities: [authorityOf("org", 20)] }, 1],
  ["no answer with one", { authorities: [authorityOf("org", 20)] }, 1],
])("DNS cache: %s is asked for as often as the RFC says", async (_title, reply, times) => {
  await using world = await DnsWorld.open(() => reply);
  await world.ask(inClass("example.org"));
  await world.ask(inClass("example.org"));
  expect(world.asked).toHaveLength(times);
});

test("DNS cache: what is not there is asked for again after the zone's minimum", async () => {
  await using world = await DnsWorld.open(() => ({ flags: 3, authorities: [authorityOf("org", 20)] }));
  await world.ask(inClass("example.org"));
  await world.clock.advance(20_001);
  await world.ask(inClass("example.org"));
  expect(world.asked).toHaveLength(2);
});

test("DNS cache: times to live grow shorter while an answer is kept", async () => {
  await using world = await DnsWorld.open(answers("192.0.2.1"));
  await world.ask(inClass("example.org"));
  await world.clock.advance(15_000);
  expect((await world.ask(inClass("example.org"))).answers).toMatchObject([{ ttl: 45 }]);
});

test("DNS cache: one tenant's flood of names neither grows it nor pushes out another's", () => {
  const cache = new DnsCache();
  const answer = (question: DnsQuestion): Buffer => {
    const reply = {
      type: "response",
      questions: [inClass(question.name)],
      answers: [addressOf(question.name, "192.0.2.1")],
    };
    return encode(reply as never);
  };
  const kept = parsed("kept.example.org");
  cache.keep("quiet", kept, answer(kept), 0);
  for (let index = 0; index < 20_000; index++) {
    const question = parsed(`n${index}.example.org`);
    cache.keep("noisy", question, answer(question), 0);
  }
  expect(cache.get("quiet", kept, 1)).toBeDefined();
  expect(cache.bytes).toBeLessThanOrEqual(513 * 1024);
});

test("DNS forwarding: an answer to another question or with another id is not believed", async () => {
  await using world = await DnsWorld.open((query, question) => {
    return question.name === "wrong-id.org"
      ? { id: ((query.id ?? 0) + 1) & 0xffff, answers: [addressOf(question.name, "192.0.2.66")] }
      : { questions: [inClass("other.org")], answers: [addressOf("other.org", "192.0.2.66")] };
  });
  const replies = await Promise.all(["wrong-name.org", "wrong-id.org"].map((name) => world.ask(inClass(name))));
  expect(replies.map(codeOf)).toEqual([2, 2]);
  expect(world.asked).toHaveLength(2);
});

test("DNS forwarding: neither the asker's id nor what it put behind its question reaches a resolver", async () => {
  const seen: [id: number | undefined, additionals: number | undefined][] = [];
  await using world = await DnsWorld.open((query, question) => {
    seen.push([query.id, query.additionals?.length]);
    return answers("192.0.2.1")(query, question);
  });
  for (let index = 0; index < 3; index++)
    await world.ask(inClass(`n${index}.org`), { additionals: [addressOf("x.org", "192.0.2.9")] });
  expect(seen.filter(([id]) => id === 7).length).toBeLessThan(3);
  expect(seen.every(([, additionals]) => additionals === 0)).toBe(true);
});

test("DNS budgets: a sandbox whose questions wait for a silent resolver leaves its neighbour's through", async () => {
  await using world = await DnsWorld.open((query, question) =>
    question.name === "neighbour.org" ? answers("192.0.2.1")(query, question) : undefined,
  );
  const noisy = createSocket("udp4");
  noisy.on("message", () => undefined);
  await new Promise<void>((resolve) => noisy.bind(0, "127.0.0.2", () => resolve()));
  for (let index = 0; index < 600; index++) {
    noisy.send(encode({ type: "query", id: index, questions: [inClass(`n${index}.org`)] }), world.port, "127.0.0.1");
    if (index % 50 === 49) await sleep(5);
  }
  const answer = await world.ask(inClass("neighbour.org"));
  noisy.close();
  expect(answer.answers).toMatchObject([{ data: "192.0.2.1" }]);
  expect(world.asked.length).toBeLessThanOrEqual(65);
});

test("DNS budgets: a sandbox that opens connections without end leaves its neighbour one", async () => {
  await using world = await DnsWorld.open(answers("192.0.2.1"));
  const greedy = Array.from({ length: 300 }, () =>
    connect({ host: "127.0.0.1", port: world.port, localAddress: "127.0.0.2" }).on("error", () => undefined),
  );
  await sleep(200);
  const neighbour = connect({ host: "127.0.0.1", port: world.port });
  neighbour.write(streamEncode({ type: "query", id: 1, questions: [inClass("example.org")] }));
  const outcome = await Promise.race([once(neighbour, "data"), once(neighbour, "close").then(() => "closed")]);
  for (const socket of [...greedy, neighbour]) socket.destroy();
  expect(outcome).not.toBe("closed");
});

test("DNS over TCP: a client that never reads holds a few answers and no more, and is closed", async () => {
  let answered = 0;
  const long = Buffer.concat([bareAnswer(parsed("example.org"), 0), Buffer.alloc(16_000)]);
  const { socket, client } = await connectionPair();
  const writer = new StreamWriter(socket, { stallMs: 300 });
  const served = serveDnsConnection(
    socket,
    async () => {
      answered += 1;
      return long;
    },
    writer,
  );
  const query = streamEncode({ type: "query", id: 1, questions: [inClass("example.org")] });
  client.write(Buffer.concat(Array.from({ length: 5_000 }, () => query)));
  let most = 0;
  const looking = setInterval(() => (most = Math.max(most, writer.bufferedBytes)), 5);
  await served;
  clearInterval(looking);
  client.destroy();
  // 80 MB were asked for; the kernel's buffers take a few of them.
  expect(answered).toBeLessThan(2_500);
  expect(most).toBeGreaterThan(0);
  expect(most).toBeLessThan(256 * 1024);
});

test("DNS over TCP: a client that sends a query without end is closed", async () => {
  const { socket, client } = await connectionPair();
  const served = serveDnsConnection(socket, async () => undefined);
  client.write(Buffer.concat([Buffer.from([0xff, 0xff]), Buffer.alloc(60_000)]));
  await served;
  client.destroy();
});

async function connectionPair(): Promise<{ socket: Socket; client: Socket }> {
  const listener = createServer();
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const client = connect({ host: "127.0.0.1", port: (listener.address() as AddressInfo).port }).on(
    "error",
    () => undefined,
  );
  const [socket] = (await once(listener, "connection")) as [Socket];
  listener.close();
  return { socket, client };
}

test("DNS messages: no bytes of anybody throw", () => {
  const random = seededRandom(20_261_117);
  const whole = encode({
    type: "query",
    id: 1,
    questions: [inClass("example.org")],
    answers: [addressOf("a.b", "192.0.2.1")],
  });
  const question = parsed("example.org");
  for (let round = 0; round < 20_000; round++) {
    const bytes = Buffer.from(whole.subarray(0, Math.floor(random() * (whole.length + 1))));
    for (let flips = 0; flips < 3 && bytes.length > 0; flips++)
      bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    tryParseQuery(bytes);
    isAnswerTo(bytes, question, 1);
    if (bytes.length >= 12) tryReadRecords(bytes, Math.floor(random() * 64));
  }
});
