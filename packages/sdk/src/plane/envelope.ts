/** One message of a Connect stream. */
export interface Envelope {
  readonly flags: number;
  readonly body: Uint8Array;
}

/** Set on the last message of a stream, which tells how it ended. */
export const endStreamFlag = 2;

const headerBytes = 5;

/** Larger than any message sandboxd sends; a length beyond it is not a length. */
const messageBytesMax = 64 * 2 ** 20;

/** Frames one message. */
export function encodeEnvelope(body: Uint8Array, flags = 0): Uint8Array {
  const framed = new Uint8Array(headerBytes + body.length);
  framed[0] = flags;
  new DataView(framed.buffer).setUint32(1, body.length);
  framed.set(body, headerBytes);
  return framed;
}

/** Thrown when a stream is not what the protocol allows, or ends inside a message. */
export class EnvelopeError extends Error {
  override readonly name = "EnvelopeError";
  /** The connection was cut: what came is right, and something is missing. */
  readonly isTruncated: boolean;

  constructor(message: string, isTruncated: boolean) {
    super(message);
    this.isTruncated = isTruncated;
  }
}

/** Cuts a byte stream into messages, which point into its chunks. */
export async function* decodeEnvelopes(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Envelope> {
  let rest: Uint8Array = new Uint8Array(0);
  for await (const chunk of stream) {
    rest = rest.length === 0 ? chunk : concat(rest, chunk);
    let at = 0;
    for (;;) {
      const length = messageLength(rest, at);
      if (length === undefined || rest.length - at < headerBytes + length) break;
      yield { flags: rest[at] ?? 0, body: rest.subarray(at + headerBytes, at + headerBytes + length) };
      at += headerBytes + length;
    }
    if (at > 0) rest = rest.subarray(at);
  }
  if (rest.length > 0) throw new EnvelopeError(`stream ended inside a message, ${rest.length} bytes into it`, true);
}

function messageLength(bytes: Uint8Array, at: number): number | undefined {
  if (bytes.length - at < headerBytes) return undefined;
  const length = new DataView(bytes.buffer, bytes.byteOffset + at + 1, 4).getUint32(0);
  if (length > messageBytesMax) throw new EnvelopeError(`message of ${length} bytes is beyond the limit`, false);
  return length;
}

function concat(left: Uint8Array, right: Uint8Array): Uint8Array {
  const joined = new Uint8Array(left.length + right.length);
  joined.set(left);
  joined.set(right, left.length);
  return joined;
}
