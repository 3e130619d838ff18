import { duplexPair } from "node:stream";
import fc from "fast-check";
import { expect, test } from "vitest";
import { SpdyConnection } from "./connection.ts";
import { controlFrame, dataFrame, FrameParser, type RawFrame, words } from "./frame.ts";
import { HeaderReader, HeaderWriter } from "./header-block.ts";

/** The same cases on every run; a failure prints the one it shrank to. */
const seeded = { seed: 31, numRuns: 300 };

const frames = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant("data" as const),
      streamId: fc.nat(0x7fff_ffff),
      fin: fc.boolean(),
      body: fc.uint8Array({ maxLength: 300 }),
    }),
    fc.record({
      kind: fc.constant("control" as const),
      type: fc.nat(0xffff),
      flags: fc.nat(255),
      body: fc.uint8Array({ maxLength: 300 }),
    }),
  ),
  { maxLength: 8 },
);

function packed(frame: RawFrame): Buffer {
  const body = Buffer.from(frame.body);
  return frame.kind === "data"
    ? dataFrame(frame.streamId, body, frame.fin)
    : controlFrame(frame.type, frame.flags, body);
}

function* cuts(bytes: Buffer, sizes: readonly number[]): Generator<Buffer> {
  let at = 0;
  for (const size of [...sizes, bytes.length]) {
    yield bytes.subarray(at, at + size);
    at += size;
    if (at >= bytes.length) return;
  }
}

test("SPDY fuzz: whatever frames are packed and however they are cut, the same frames come out", () => {
  fc.assert(
    fc.property(frames, fc.array(fc.integer({ min: 1, max: 400 }), { maxLength: 30 }), (sent, sizes) => {
      const parser = new FrameParser();
      const wanted = sent.map((frame) => ({ ...frame, body: Buffer.from(frame.body) }) as RawFrame);
      const got: RawFrame[] = [];
      for (const piece of cuts(Buffer.concat(wanted.map(packed)), sizes)) got.push(...parser.push(piece));
      expect(got).toEqual(wanted);
    }),
    seeded,
  );
});

test("SPDY fuzz: bytes of any kind become frames or an error of the parser, never anything else", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 2000 }), fc.array(fc.integer({ min: 1, max: 99 })), (bytes, sizes) => {
      const parser = new FrameParser();
      try {
        let size = 0;
        for (const piece of cuts(Buffer.from(bytes), sizes))
          for (const frame of parser.push(piece)) size += 8 + frame.body.length;
        expect(size).toBeLessThanOrEqual(bytes.length);
      } catch (error) {
        expect((error as Error).message).toMatch(/^(frame of \d+ bytes is larger|SPDY version \d+ is not)/);
      }
    }),
    seeded,
  );
});

test("SPDY fuzz: a header block that was changed anywhere is read or refused, and reading ends", async () => {
  const block = new HeaderWriter().write({ streamtype: "data", port: "8888", requestid: "0" });
  await fc.assert(
    fc.asyncProperty(fc.nat(block.length - 1), fc.nat(255), fc.nat(block.length), async (at, value, length) => {
      const reader = new HeaderReader();
      const changed = Buffer.from(block.subarray(0, length));
      if (at < changed.length) changed[at] = value;
      const outcome = await reader.read(changed).then(
        (headers) => Object.values(headers).every((text) => typeof text === "string"),
        (error: unknown) => error instanceof Error,
      );
      expect(outcome).toBe(true);
      reader.close();
    }),
    seeded,
  );
});

test("SPDY fuzz: a connection survives or ends, whatever a peer sends, and takes its streams along", async () => {
  const syn = (id: number): Buffer => {
    const block = new HeaderWriter().write({ streamtype: "data" });
    return controlFrame(1, 0, Buffer.concat([words(id, 0), Buffer.alloc(2), block]));
  };
  await fc.assert(
    fc.asyncProperty(frames, fc.uint8Array({ maxLength: 64 }), async (sent, tail) => {
      const [ours, theirs] = duplexPair();
      const open = new Set<object>();
      const connection = new SpdyConnection(ours, {
        onStream: (stream) => {
          open.add(stream);
          stream.once("close", () => open.delete(stream));
          stream.resume();
        },
      });
      theirs.resume();
      theirs.on("error", () => undefined);
      theirs.write(syn(1));
      for (const frame of sent) theirs.write(packed({ ...frame, body: Buffer.from(frame.body) } as RawFrame));
      theirs.end(Buffer.from(tail));
      await connection.closed;
      await new Promise((resolve) => setImmediate(resolve));
      expect(open.size).toBe(0);
    }),
    { ...seeded, numRuns: 150 },
  );
});
