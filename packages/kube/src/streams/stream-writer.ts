import type { Writable } from "node:stream";

/** How long a reader may take nothing while something waits for it; a person who stopped a terminal comes back sooner. */
export const readerStallMsDefault = 5 * 60_000;

/** What a writer does about a reader that has stopped. */
export interface StreamWriterOptions {
  /** Default `readerStallMsDefault`. */
  readonly stallMs?: number;
  /** The reader took nothing for `stallMs`. Default: the target is destroyed. */
  readonly onStall?: () => void;
}

/**
 * The one way to put bytes that somebody else produces into a stream that somebody else reads. A caller that waits for `send` or
 * `ready` holds no more than the stream's own mark and one piece, however long the reader takes; and a reader that takes
 * nothing at all is given up after a while.
 *
 * Bound: the target's `highWaterMark` and one piece for each sender that waits. Full: `ready` waits.
 */
export class StreamWriter {
  readonly #target: Writable;
  readonly #stallMs: number;
  readonly #onStall: () => void;
  #waiting: Promise<void> | undefined;

  constructor(target: Writable, { stallMs = readerStallMsDefault, onStall }: StreamWriterOptions = {}) {
    this.#target = target;
    this.#stallMs = stallMs;
    this.#onStall = onStall ?? (() => void target.destroy(new Error(`nothing was read for ${stallMs} ms`)));
    // Senders learn of the end by `isOver`; unheard, a reader's reset would end the process.
    target.on("error", ignoreEnd);
  }

  /** Bytes that wait to be read. */
  get bufferedBytes(): number {
    return this.#target.writableLength;
  }

  /** Nothing more can be written. */
  get isOver(): boolean {
    return this.#target.destroyed || this.#target.writableEnded;
  }

  /** More is welcome, or would be thrown away. */
  get isReady(): boolean {
    return this.isOver || !this.#target.writableNeedDrain;
  }

  /** Puts bytes in without waiting. Returns `isReady`: false asks the caller to stop its source until `ready`. */
  write(bytes: Uint8Array | string): boolean {
    if (!this.isOver && bytes.length > 0) this.#target.write(bytes);
    return this.isReady;
  }

  /** Resolves when more can be written, or never will be. */
  ready(): Promise<void> {
    if (this.isReady) return Promise.resolve();
    this.#waiting ??= this.#drained();
    return this.#waiting;
  }

  /** Puts bytes in and waits until more are welcome. False: the reader has gone. */
  async send(bytes: Uint8Array | string): Promise<boolean> {
    if (!this.write(bytes)) await this.ready();
    return !this.isOver;
  }

  #drained(): Promise<void> {
    const target = this.#target;
    return new Promise((resolve) => {
      let left = target.writableLength;
      const look = (): void => {
        const isSlow = target.writableLength < left;
        left = target.writableLength;
        if (!isSlow) this.#onStall();
      };
      const timer = setInterval(look, this.#stallMs);
      timer.unref();
      const done = (): void => {
        clearInterval(timer);
        target.off("drain", done).off("close", done);
        this.#waiting = undefined;
        resolve();
      };
      target.on("drain", done).on("close", done);
    });
  }
}

function ignoreEnd(): void {}

/** Stops a source while one of the writers that it feeds is full. Call it after each piece. */
export function holdBack(source: { pause(): unknown; resume(): unknown }, ...writers: readonly StreamWriter[]): void {
  if (writers.every(({ isReady }) => isReady)) return;
  source.pause();
  void Promise.all(writers.map((writer) => writer.ready())).then(() => {
    // One may be full again by the time that the last is not.
    if (writers.every(({ isReady }) => isReady)) source.resume();
    else holdBack(source, ...writers);
  });
}
