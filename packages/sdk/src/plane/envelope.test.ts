import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeEnvelopes, EnvelopeError, encodeEnvelope } from "./envelope.ts";

async function* chunks(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function collect(stream: AsyncIterable<Uint8Array>): Promise<{ flags: number; body: number[] }[]> {
  const found: { flags: number; body: number[] }[] = [];
  for await (const { flags, body } of decodeEnvelopes(stream)) found.push({ flags, body: [...body] });
  return found;
}

test("decodeEnvelopes: any cut of the stream gives the same messages", async () => {
  const message = fc.record({ flags: fc.constantFrom(0, 2), body: fc.array(fc.nat(255), { maxLength: 300 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(message, { maxLength: 8 }), fc.integer({ min: 1, max: 64 }), async (messages, size) => {
      const framed = messages.flatMap(({ flags, body }) => [...encodeEnvelope(Uint8Array.from(body), flags)]);
      expect(await collect(chunks(Uint8Array.from(framed), size))).toEqual(messages);
    }),
  );
});

test("decodeEnvelopes: a stream cut inside a message is truncated", async () => {
  const framed = encodeEnvelope(new Uint8Array(10));
  const reading = collect(chunks(framed.subarray(0, 8), 3));
  await expect(reading).rejects.toSatisfy((error) => error instanceof EnvelopeError && error.isTruncated);
});

test("decodeEnvelopes: a length beyond the limit is no message", async () => {
  const reading = collect(chunks(Uint8Array.from([0, 255, 255, 255, 255, 1]), 6));
  await expect(reading).rejects.toSatisfy((error) => error instanceof EnvelopeError && !error.isTruncated);
});
