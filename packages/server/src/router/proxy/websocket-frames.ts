/** Why a WebSocket is ended by the router: it goes away, or a limit says that the session does (RFC 6455, 7.4.1). */
export const goingAway = 1001;

/** Follows the frames of one direction of a WebSocket, without looking into them. Keeps at most one frame's header. */
export class WebsocketFrames {
  /** The part of a header that has arrived; 14 bytes at most. */
  #header = Buffer.alloc(0);
  #payloadBytesLeft = 0;

  /** Whether the next byte begins a frame: only there may a frame of our own be put in. */
  get isBetween(): boolean {
    return this.#payloadBytesLeft === 0 && this.#header.length === 0;
  }

  /** Follows bytes that pass. */
  push(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0) rest = rest.subarray(this.#frame(rest));
  }

  /** Follows bytes up to the end of the frame under way, and returns how many those are; all of them where it does not end here. */
  pushToBoundary(bytes: Buffer): number {
    let taken = 0;
    while (taken < bytes.length && !this.isBetween) taken += this.#frame(bytes.subarray(taken));
    return taken;
  }

  /** Takes bytes of one header or one payload, and returns how many. */
  #frame(bytes: Buffer): number {
    if (this.#payloadBytesLeft > 0) {
      const taken = Math.min(this.#payloadBytesLeft, bytes.length);
      this.#payloadBytesLeft -= taken;
      return taken;
    }
    const before = this.#header.length;
    const header = Buffer.concat([this.#header, bytes.subarray(0, headerBytesMax - before)]);
    const size = headerSize(header);
    if (size === undefined || header.length < size) {
      this.#header = header;
      return header.length - before;
    }
    this.#header = Buffer.alloc(0);
    this.#payloadBytesLeft = payloadSize(header);
    return size - before;
  }
}

/** Two bytes, eight for a long length, four for a mask. */
const headerBytesMax = 14;

function headerSize(header: Buffer): number | undefined {
  const second = header[1];
  if (second === undefined) return undefined;
  const length = second & 0x7f;
  return 2 + (length === 127 ? 8 : length === 126 ? 2 : 0) + ((second & 0x80) === 0 ? 0 : 4);
}

function payloadSize(header: Buffer): number {
  const length = (header[1] as number) & 0x7f;
  if (length === 127) return Number(header.readBigUInt64BE(2));
  return length === 126 ? header.readUInt16BE(2) : length;
}

/** A close frame; towards a server it must be masked, and a mask of zeros changes nothing. */
export function closeFrame(code: number, reason: string, options: { readonly isMasked: boolean }): Buffer {
  const payload = Buffer.concat([Buffer.from([code >> 8, code & 0xff]), Buffer.from(reason)]);
  const mask = options.isMasked ? [0, 0, 0, 0] : [];
  return Buffer.concat([Buffer.from([0x88, (options.isMasked ? 0x80 : 0) | payload.length, ...mask]), payload]);
}
