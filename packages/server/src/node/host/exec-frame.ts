/** The kinds of frame on an exec's stream; sandbox-host's hostapi package is the other end. */
export const frameKind = { stdin: 0, stdout: 1, stderr: 2, resize: 3, exit: 4, stdinEnd: 5 } as const;

const headerBytes = 5;

/** No frame of sandbox-host is larger; a larger one is a broken stream. */
const frameBytesMax = 1 << 20;

/** One frame. */
export interface ExecFrame {
  readonly kind: number;
  readonly content: Buffer;
}

/** Writes one frame: a byte of kind, four of length (big endian), then the content. */
export function encodeFrame(kind: number, content: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + content.length);
  frame.writeUInt8(kind, 0);
  frame.writeUInt32BE(content.length, 1);
  frame.set(content, headerBytes);
  return frame;
}

/** Cuts a byte stream into frames; holds back at most one incomplete frame. */
export class FrameDecoder {
  #pending: Buffer = Buffer.alloc(0);

  /** The frames that are complete with these bytes. Throws RangeError on a frame over the bound. */
  push(bytes: Uint8Array): ExecFrame[] {
    this.#pending = Buffer.concat([this.#pending, bytes]);
    const frames: ExecFrame[] = [];
    while (this.#pending.length >= headerBytes) {
      const size = this.#pending.readUInt32BE(1);
      if (size > frameBytesMax) throw new RangeError(`frame of ${size} bytes is over the bound of ${frameBytesMax}`);
      if (this.#pending.length < headerBytes + size) break;
      frames.push({
        kind: this.#pending.readUInt8(0),
        content: this.#pending.subarray(headerBytes, headerBytes + size),
      });
      this.#pending = this.#pending.subarray(headerBytes + size);
    }
    return frames;
  }
}
