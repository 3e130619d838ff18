import { expect, test } from "vitest";
import { encodeFrame, FrameReader, opcode } from "./websocket-frames.ts";

/** What a server would send: the same without a mask. */
function unmasked(code: number, payload: Buffer): Buffer {
  const head =
    payload.length < 126
      ? Buffer.from([0x80 | code, payload.length])
      : Buffer.from([0x80 | code, 126, payload.length >> 8, payload.length & 255]);
  return Buffer.concat([head, payload]);
}

test("FrameReader: frames of every length survive any cut", () => {
  const payloads = [0, 1, 125, 126, 3000].map((size) => Buffer.alloc(size, size & 255));
  const bytes = Buffer.concat(payloads.map((payload) => unmasked(opcode.binary, payload)));
  for (const size of [1, 7, 4096]) {
    const reader = new FrameReader();
    const frames = [];
    for (let at = 0; at < bytes.length; at += size) frames.push(...reader.push(bytes.subarray(at, at + size)));
    expect(frames.map(({ payload }) => payload.length)).toEqual([0, 1, 125, 126, 3000]);
  }
});

test("encodeFrame: a client's frame is masked and unmasks to its payload", () => {
  const frame = encodeFrame(opcode.binary, Buffer.from("hello"));
  expect([frame[0], frame[1]]).toEqual([0x82, 0x85]);
  const mask = frame.subarray(2, 6);
  const payload = frame.subarray(6).map((byte, index) => byte ^ (mask[index & 3] ?? 0));
  expect(Buffer.from(payload).toString()).toBe("hello");
});

test("FrameReader: a masked frame from a server is refused", () => {
  expect(() => new FrameReader().push(encodeFrame(opcode.binary, Buffer.from("x")))).toThrow("masked");
});
