import { constants, createInflate, type Inflate } from "node:zlib";
import { spdyDictionary, spdyDictionaryId } from "./dictionary.ts";

/** Headers of one SPDY stream; names are lower case, a repeated header is joined with NUL as on the wire. */
export type SpdyHeaders = Readonly<Record<string, string>>;

/** Decompressed size of a header block beyond which the peer is refused: real clients send under 1 KiB. */
const headerBlockBytesMax = 64 * 1024;

/** Longest piece a stored deflate block can carry. */
const storedBlockBytesMax = 0xffff;

/**
 * Writes header blocks as one zlib stream of stored blocks. Any peer's inflater reads that, and it keeps this side
 * synchronous: header blocks of exec and port-forward are a few dozen bytes, so compression would gain nothing.
 */
export class HeaderWriter {
  #started = false;

  write(headers: SpdyHeaders): Buffer {
    const plain = serialiseHeaders(headers);
    const parts: Buffer[] = [];
    if (!this.#started) parts.push(zlibHeader());
    this.#started = true;
    for (let at = 0; at < plain.length; at += storedBlockBytesMax) {
      parts.push(storedBlock(plain.subarray(at, at + storedBlockBytesMax)));
    }
    // An empty block is the flush mark at which peers hand out what they have decompressed.
    parts.push(storedBlock(Buffer.alloc(0)));
    return Buffer.concat(parts);
  }
}

/** Reads header blocks off one connection's shared zlib stream; calls must not overlap. */
export class HeaderReader {
  readonly #inflate: Inflate = createInflate({ dictionary: spdyDictionary, finishFlush: constants.Z_SYNC_FLUSH });
  #chunks: Buffer[] = [];
  #bytes = 0;
  #failure: Error | undefined;

  constructor() {
    this.#inflate.on("data", (chunk: Buffer) => this.#collect(chunk));
    this.#inflate.on("error", (error) => {
      this.#failure ??= error;
    });
  }

  /** Throws when the block is not valid zlib, too long, or not a list of headers. */
  async read(block: Buffer): Promise<SpdyHeaders> {
    await new Promise<void>((resolve, reject) => {
      this.#inflate.once("error", reject);
      this.#inflate.write(block, () => {
        this.#inflate.flush(constants.Z_SYNC_FLUSH, () => {
          this.#inflate.off("error", reject);
          resolve();
        });
      });
    });
    if (this.#failure !== undefined) throw this.#failure;
    const plain = Buffer.concat(this.#chunks);
    this.#chunks = [];
    this.#bytes = 0;
    return parseHeaders(plain);
  }

  close(): void {
    this.#inflate.destroy();
  }

  #collect(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > headerBlockBytesMax) {
      this.#inflate.destroy(new Error(`header block is larger than ${headerBlockBytesMax} bytes`));
      return;
    }
    this.#chunks.push(chunk);
  }
}

function zlibHeader(): Buffer {
  // 0x78: deflate with a 32 KiB window; 0xbb: a preset dictionary follows, check bits included.
  const header = Buffer.from([0x78, 0xbb, 0, 0, 0, 0]);
  header.writeUInt32BE(spdyDictionaryId, 2);
  return header;
}

function storedBlock(bytes: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt16LE(bytes.length, 1);
  head.writeUInt16LE(~bytes.length & 0xffff, 3);
  return Buffer.concat([head, bytes]);
}

function serialiseHeaders(headers: SpdyHeaders): Buffer {
  const entries = Object.entries(headers);
  const parts = [uint32(entries.length)];
  for (const [name, value] of entries) {
    const nameBytes = Buffer.from(name.toLowerCase(), "latin1");
    const valueBytes = Buffer.from(value, "latin1");
    parts.push(uint32(nameBytes.length), nameBytes, uint32(valueBytes.length), valueBytes);
  }
  return Buffer.concat(parts);
}

function parseHeaders(plain: Buffer): SpdyHeaders {
  let at = 0;
  const take = (length: number): Buffer => {
    if (at + length > plain.length) throw new Error("header block ends early");
    at += length;
    return plain.subarray(at - length, at);
  };
  const headers: Record<string, string> = {};
  const count = take(4).readUInt32BE(0);
  for (let index = 0; index < count; index++) {
    const name = take(take(4).readUInt32BE(0)).toString("latin1").toLowerCase();
    headers[name] = take(take(4).readUInt32BE(0)).toString("latin1");
  }
  return headers;
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value, 0);
  return bytes;
}
