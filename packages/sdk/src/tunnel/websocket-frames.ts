import { randomFillSync } from "node:crypto";

/** Frame types of RFC 6455 that matter to us. */
export const opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** One frame as it came. */
export interface Frame {
  readonly opcode: number;
  readonly isFinal: boolean;
  readonly payload: Buffer;
}

/** Larger than any frame an API server sends; a length beyond it is not a length. */
const payloadBytesMax = 64 * 2 ** 20;

/** A client's frame: masked, as the protocol demands of clients. */
export function encodeFrame(code: number, payload: Uint8Array): Buffer {
  const { length } = payload;
  const lengthBytes = length < 126 ? 0 : length < 65_536 ? 2 : 8;
  const frame = Buffer.allocUnsafe(2 + lengthBytes + 4 + length);
  frame[0] = 0x80 | code;
  frame[1] = 0x80 | (lengthBytes === 0 ? length : lengthBytes === 2 ? 126 : 127);
  if (lengthBytes === 2) frame.writeUInt16BE(length, 2);
  if (lengthBytes === 8) frame.writeBigUInt64BE(BigInt(length), 2);
  const mask = randomFillSync(frame, 2 + lengthBytes, 4).subarray(2 + lengthBytes, 6 + lengthBytes);
  const body = frame.subarray(6 + lengthBytes);
  for (let at = 0; at < length; at += 1) body[at] = (payload[at] ?? 0) ^ (mask[at & 3] ?? 0);
  return frame;
}

/** Cuts a server's byte stream into frames. */
export class FrameReader {
  #rest: Buffer = Buffer.alloc(0);

  /** The frames that `chunk` completes; throws for what no server may send. */
  push(chunk: Buffer): Frame[] {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const frames: Frame[] = [];
    for (
      let size = this.#frameSize();
      size !== undefined && this.#rest.length >= size.total;
      size = this.#frameSize()
    ) {
      const first = this.#rest[0] ?? 0;
      const payload = this.#rest.subarray(size.header, size.total);
      frames.push({ opcode: first & 0x0f, isFinal: (first & 0x80) !== 0, payload });
      this.#rest = this.#rest.subarray(size.total);
    }
    return frames;
  }

  #frameSize(): { readonly header: number; readonly total: number } | undefined {
    const rest = this.#rest;
    if (rest.length < 2) return undefined;
    const second = rest[1] ?? 0;
    if ((second & 0x80) !== 0) throw new Error("server sent a masked frame");
    const short = second & 0x7f;
    const header = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (rest.length < header) return undefined;
    const length = short < 126 ? short : short === 126 ? rest.readUInt16BE(2) : Number(rest.readBigUInt64BE(2));
    if (length > payloadBytesMax) throw new Error(`server sent a frame of ${length} bytes`);
    return { header, total: header + length };
  }
}
