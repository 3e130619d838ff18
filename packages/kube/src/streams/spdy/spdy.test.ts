import { duplexPair } from "node:stream";
import { expect, test } from "vitest";
import { SpdyConnection, type SpdyStream } from "./connection.ts";
import { spdyDictionary, spdyDictionaryId } from "./dictionary.ts";
import { controlFrame, FrameParser, words } from "./frame.ts";
import { HeaderReader, HeaderWriter } from "./header-block.ts";

/** What a client built on the common Go library sent: an error stream, a data stream with 13 bytes, a ping, FIN, GOAWAY. */
const recordedClient = Buffer.from(
  "800300010000003e0000000100000000000078f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45e01c60616161c1c0c0c0590489c64c50f2" +
    "663400000000ffff0000000101000000800300010000001800000003000000000000c2aa19540e2512d60b000000ffff000000030000000d68656c6c6f20" +
    "73616e64626f78800300060000000400000001000000030100000080030007000000080000000000000000",
  "hex",
);

test("spdyDictionary: has the id that the protocol fixes", () => {
  let a = 1;
  let b = 0;
  for (const byte of spdyDictionary) {
    a = (a + byte) % 65_521;
    b = (b + a) % 65_521;
  }
  expect((b * 65_536 + a) >>> 0).toBe(spdyDictionaryId);
});

test("FrameParser: cuts a recorded connection into frames, however the bytes arrive", () => {
  const parser = new FrameParser();
  const kinds = [...recordedClient]
    .flatMap((byte) => parser.push(Buffer.from([byte])))
    .map((frame) => (frame.kind === "data" ? `data ${frame.streamId}` : `control ${frame.type}`));
  expect(kinds).toEqual(["control 1", "data 1", "control 1", "data 3", "control 6", "data 3", "control 7"]);
});

test("FrameParser: refuses another version of the protocol", () => {
  expect(() => new FrameParser().push(Buffer.from("8002000100000000", "hex"))).toThrow("SPDY version 2");
});

test("HeaderWriter: writes what HeaderReader reads, block after block of one stream", async () => {
  const writer = new HeaderWriter();
  const reader = new HeaderReader();
  const first = { streamtype: "error", port: "8888" };
  const second = { streamtype: "data", long: "x".repeat(40_000) };
  expect(await reader.read(writer.write(first))).toEqual(first);
  expect(await reader.read(writer.write(second))).toEqual(second);
  reader.close();
});

test("HeaderReader: refuses a block that inflates beyond its bound", async () => {
  const reader = new HeaderReader();
  await expect(reader.read(new HeaderWriter().write({ bomb: "y".repeat(100_000) }))).rejects.toThrow("larger than");
});

test("SpdyConnection: serves a recorded client: streams with headers, data, echo and ping", async () => {
  const [ours, theirs] = duplexPair();
  const seen: Record<string, string>[] = [];
  const connection = new SpdyConnection(ours, {
    onStream: (stream: SpdyStream) => {
      seen.push({ ...stream.headers });
      stream.reply();
      if (stream.headers["streamtype"] === "data") stream.pipe(stream);
      else stream.resume();
    },
  });
  const answer: Buffer[] = [];
  theirs.write(recordedClient);
  for await (const chunk of theirs) {
    answer.push(chunk as Buffer);
    if (Buffer.concat(answer).includes("hello sandbox")) break;
  }
  await connection.closed;
  expect(seen.map(({ streamtype, port, requestid }) => [streamtype, port, requestid])).toEqual([
    ["error", "8888", "0"],
    ["data", "8888", "0"],
  ]);
  const frames = new FrameParser().push(Buffer.concat(answer));
  expect(
    frames.some((frame) => frame.kind === "data" && frame.streamId === 3 && frame.body.toString() === "hello sandbox"),
  ).toBe(true);
  expect(frames.filter((frame) => frame.kind === "control" && frame.type === 6)).toHaveLength(1);
});

test("SpdyConnection: refuses a stream that nobody wants and lives on", async () => {
  const [ours, theirs] = duplexPair();
  const connection = new SpdyConnection(ours, {
    onStream: () => {
      throw new Error("not wanted");
    },
  });
  const answer: Buffer[] = [];
  theirs.on("data", (chunk: Buffer) => answer.push(chunk));
  theirs.end(recordedClient);
  await connection.closed;
  const resets = new FrameParser()
    .push(Buffer.concat(answer))
    .filter((frame) => frame.kind === "control" && frame.type === 3);
  expect(resets).toHaveLength(2);
});

test("SpdyConnection: a peer that pings without end and reads nothing is not read from any more", async () => {
  const [ours, theirs] = duplexPair();
  const connection = new SpdyConnection(ours, { onStream: () => undefined });
  const ping = controlFrame(6, 0, words(1));
  const flood = Buffer.concat(Array.from({ length: 5_000 }, () => ping));
  for (let times = 0; times < 40; times++) theirs.write(flood);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(ours.writableLength).toBeLessThan(256 * 1024);
  connection.cut();
  theirs.destroy();
  await connection.closed;
});
