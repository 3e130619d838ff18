import { BackupError } from "./backup-error.ts";

/** Reads a stream of chunks as pieces of asked lengths; holds one chunk at a time. */
export class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array();

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /** The next `length` bytes; throws `damaged` where the stream ends before. */
  async read(length: number): Promise<Buffer> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.stream(length)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  /** The next `length` bytes as they come. */
  async *stream(length: number): AsyncGenerator<Uint8Array> {
    for (let left = length; left > 0; ) {
      if (!(await this.#fill())) throw endsEarly();
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  /** At most `length` bytes: fewer only at the stream's end. */
  async readUpTo(length: number): Promise<Buffer> {
    const pieces: Uint8Array[] = [];
    for (let left = length; left > 0 && (await this.#fill()); ) {
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      pieces.push(piece);
    }
    return Buffer.concat(pieces);
  }

  /** Whether the stream is at its end. */
  async isAtEnd(): Promise<boolean> {
    return !(await this.#fill());
  }

  /** Makes sure that there is a byte to hand out; false at the end. */
  async #fill(): Promise<boolean> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#chunks.next();
      if (done === true) return false;
      this.#rest = value;
    }
    return true;
  }
}

function endsEarly(): BackupError {
  return new BackupError("damaged", "the backup ends early; it was cut off, make or copy it again");
}
