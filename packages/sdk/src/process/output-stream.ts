import { readBytes } from "../plane/data-plane.ts";

/** With a reader, the sandbox is asked to wait beyond this; without one, the oldest output is let go. */
const queueBytesMax = 4 * 2 ** 20;

/**
 * One output stream of a process: an async iterable of bytes, read once.
 * Bound: 4 MiB. A full queue holds the process back while it has a reader; a stream without a reader keeps its last
 * bytes and never holds anything back, so that `exited` needs no readers.
 */
export class OutputStream implements AsyncIterable<Uint8Array> {
  readonly #chunks: Uint8Array[] = [];
  #bytes = 0;
  #hasReader = false;
  #end: { readonly error?: unknown } | undefined;
  #wakeReader: (() => void) | undefined;
  #wakeWriter: (() => void) | undefined;

  /** Adds output; resolves when there is room for more. */
  async push(chunk: Uint8Array): Promise<void> {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    this.#wakeReader?.();
    while (this.#bytes > queueBytesMax && this.#end === undefined) {
      if (this.#hasReader) await new Promise<void>((resolve) => (this.#wakeWriter = resolve));
      else if (this.#chunks.length > 1) this.#take();
      else return;
    }
  }

  /** No more output comes; with an error, readers get it behind what came. */
  finish(end: { readonly error?: unknown } = {}): void {
    this.#end ??= end;
    this.#wakeReader?.();
    this.#wakeWriter?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    this.#hasReader = true;
    try {
      for (;;) {
        const chunk = this.#take();
        if (chunk !== undefined) yield chunk;
        else if (this.#end === undefined) await new Promise<void>((resolve) => (this.#wakeReader = resolve));
        else if (this.#end.error !== undefined) throw this.#end.error;
        else return;
      }
    } finally {
      this.#hasReader = false;
      this.#wakeWriter?.();
    }
  }

  /** The rest of the output as text. */
  async text(): Promise<string> {
    return new TextDecoder().decode(await this.bytes());
  }

  /** The rest of the output. */
  bytes(): Promise<Uint8Array> {
    return readBytes(this);
  }

  #take(): Uint8Array | undefined {
    const chunk = this.#chunks.shift();
    if (chunk === undefined) return undefined;
    this.#bytes -= chunk.length;
    this.#wakeWriter?.();
    return chunk;
  }
}
