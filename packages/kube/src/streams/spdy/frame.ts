/** Control frame types of SPDY/3.1 that appear between Kubernetes clients and a kubelet. */
export const frameType = {
  synStream: 1,
  synReply: 2,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  headers: 8,
  windowUpdate: 9,
} as const;

/** Why a stream was reset. */
export const rstStatus = { protocolError: 1, invalidStream: 2, refusedStream: 3, cancel: 5, internalError: 6 } as const;

/** Set on the last frame of a direction of a stream. */
export const flagFin = 1;

/** One frame off the wire: a piece of a stream's bytes, or a control message whose body is still packed. */
export type RawFrame =
  | { readonly kind: "data"; readonly streamId: number; readonly fin: boolean; readonly body: Buffer }
  | { readonly kind: "control"; readonly type: number; readonly flags: number; readonly body: Buffer };

/** A frame's length field has 24 bits, but no peer of ours sends frames beyond 64 KiB; 1 MiB leaves room. */
const frameBytesMax = 1024 * 1024;

const spdyVersion = 3;

/** Cuts a byte stream into frames; holds at most one incomplete frame. */
export class FrameParser {
  #pending: Buffer = Buffer.alloc(0);

  /** Throws on a frame of another protocol version or beyond the size limit. */
  push(chunk: Buffer): RawFrame[] {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const frames: RawFrame[] = [];
    for (;;) {
      const frame = this.#next();
      if (frame === undefined) return frames;
      frames.push(frame);
    }
  }

  #next(): RawFrame | undefined {
    const bytes = this.#pending;
    if (bytes.length < 8) return undefined;
    const length = bytes.readUIntBE(5, 3);
    if (length > frameBytesMax) throw new Error(`frame of ${length} bytes is larger than ${frameBytesMax}`);
    if (bytes.length < 8 + length) return undefined;
    this.#pending = bytes.subarray(8 + length);
    return parseFrame(bytes.subarray(0, 8), bytes.subarray(8, 8 + length));
  }
}

function parseFrame(head: Buffer, body: Buffer): RawFrame {
  const word = head.readUInt32BE(0);
  const flags = head.readUInt8(4);
  if (word >>> 31 === 0) return { kind: "data", streamId: word & 0x7fffffff, fin: (flags & flagFin) !== 0, body };
  const version = (word >>> 16) & 0x7fff;
  if (version !== spdyVersion) throw new Error(`SPDY version ${version} is not ${spdyVersion}`);
  return { kind: "control", type: word & 0xffff, flags, body };
}

/** Packs a control frame. */
export function controlFrame(type: number, flags: number, body: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt16BE(0x8000 | spdyVersion, 0);
  head.writeUInt16BE(type, 2);
  head.writeUInt8(flags, 4);
  head.writeUIntBE(body.length, 5, 3);
  return Buffer.concat([head, body]);
}

/** Packs a data frame; the caller cuts long payloads. */
export function dataFrame(streamId: number, body: Buffer, fin: boolean): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(streamId, 0);
  head.writeUInt8(fin ? flagFin : 0, 4);
  head.writeUIntBE(body.length, 5, 3);
  return Buffer.concat([head, body]);
}

/** Packs the bodies that are plain 32-bit words: RST_STREAM, PING, GOAWAY. */
export function words(...values: number[]): Buffer {
  const body = Buffer.alloc(values.length * 4);
  values.forEach((value, index) => body.writeUInt32BE(value >>> 0, index * 4));
  return body;
}
