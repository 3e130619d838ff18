import fc from "fast-check";
import { expect, test } from "vitest";
import { closeFrame, WebsocketFrames } from "./websocket-frames.ts";

function frame(size: number, isMasked: boolean): Buffer {
  const mask = isMasked ? 0x80 : 0;
  const header =
    size < 126
      ? Buffer.from([0x82, mask | size])
      : size < 65_536
        ? Buffer.from([0x82, mask | 126, size >> 8, size & 0xff])
        : Buffer.from([0x82, mask | 127, 0, 0, 0, 0, 0, size >> 16, (size >> 8) & 0xff, size & 0xff]);
  return Buffer.concat([header, Buffer.alloc(isMasked ? 4 : 0, 9), Buffer.alloc(size, 0x82)]);
}

const frames = fc.array(
  fc.tuple(fc.oneof(fc.nat(200), fc.constantFrom(0, 125, 126, 65_535, 65_536, 70_001)), fc.boolean()),
  { minLength: 1, maxLength: 6 },
);

test("websocket frames: whatever the frames and the pieces they come in, boundaries are known exactly", () => {
  fc.assert(
    fc.property(frames, fc.array(fc.nat(5_000), { maxLength: 40 }), (shapes, sizes) => {
      const sent = shapes.map(([size, isMasked]) => frame(size, isMasked));
      const ends = new Set<number>([0]);
      let total = 0;
      for (const bytes of sent) ends.add((total += bytes.length));
      const all = Buffer.concat(sent);
      const follower = new WebsocketFrames();
      let at = 0;
      for (const size of [...sizes, all.length]) {
        follower.push(all.subarray(at, at + size));
        at = Math.min(at + size, all.length);
        expect(follower.isBetween).toBe(ends.has(at));
      }
    }),
    { seed: 6, numRuns: 200 },
  );
});

test("websocket frames: the frame under way is taken to its end and no further", () => {
  fc.assert(
    fc.property(fc.nat(70_000), fc.boolean(), fc.double({ min: 0, max: 1, noNaN: true }), (size, isMasked, share) => {
      const [first, second] = [frame(size, isMasked), frame(3, isMasked)];
      const cut = Math.max(1, Math.floor(share * (first.length - 1)));
      const follower = new WebsocketFrames();
      follower.push(first.subarray(0, cut));
      const rest = Buffer.concat([first.subarray(cut), second]);
      expect(follower.pushToBoundary(rest)).toBe(first.length - cut);
      expect(follower.isBetween).toBe(true);
      expect(follower.pushToBoundary(second)).toBe(0);
    }),
    { seed: 6, numRuns: 200 },
  );
});

test("websocket frames: a close frame says code and reason, masked towards a server", () => {
  expect(closeFrame(1001, "bye", { isMasked: false })).toEqual(
    Buffer.from([0x88, 5, 0x03, 0xe9, ...Buffer.from("bye")]),
  );
  expect(closeFrame(1001, "", { isMasked: true })).toEqual(Buffer.from([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9]));
});
