import { setImmediate } from "node:timers/promises";
import type { LogReader } from "./log-reader.ts";
import type { StoreEvent, Watch } from "./store.ts";
import { StoreError } from "./store-error.ts";
import type { WatchCache } from "./watch-cache.ts";

/** Revisions read from the file at a time: about two milliseconds of the event loop. */
const historyWindow = 1_000;

/** Events looked at between two deliveries. */
const deliveryMax = 1_000;

/** What a watch needs of its store. */
export interface WatchSource {
  readonly cache: WatchCache;
  readonly reader: LogReader;
  /** A reader that is further behind than this gets the error `overflow` and must list again. */
  readonly lagBytesMax: number;
  /** Called when the watch ends. */
  readonly unsubscribe: (watch: LogWatch) => void;
}

/**
 * A position in the log. It holds no events: it reads the window in memory, and the file for what is older, when its
 * reader asks. While it waits it has seen everything that concerns it.
 */
export class LogWatch implements Watch {
  readonly prefix: string;
  readonly #source: WatchSource;
  #position: number;
  /** About the `totalBytes` of the cache at `#position`; undefined while reading what was there before the watch. */
  #positionBytes: number | undefined;
  #waiting: PromiseWithResolvers<void> | undefined;
  #ended = false;
  #error: StoreError | undefined;

  constructor(prefix: string, afterRevision: number, source: WatchSource) {
    this.prefix = prefix;
    this.#source = source;
    this.#position = afterRevision;
    if (afterRevision >= source.cache.windowStart) this.#positionBytes = source.cache.totalBytes;
  }

  get revision(): number {
    return this.#waiting === undefined ? this.#position : this.#source.cache.revision;
  }

  /** Tells a waiting watch that `event` concerns it; everything before that did not. */
  notify({ row }: StoreEvent, totalBytes: number): void {
    const waiting = this.#waiting;
    if (waiting === undefined) return;
    this.#waiting = undefined;
    this.#position = row.revision - 1;
    this.#positionBytes = totalBytes;
    waiting.resolve();
  }

  close(): void {
    this.#end();
  }

  /** Ends the iteration with an error. */
  fail(error: StoreError): void {
    this.#error ??= error;
    this.#end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly StoreEvent[]> {
    try {
      while (!this.#ended) {
        const batch = await this.#next();
        if (batch.length > 0 && !this.#ended) yield batch;
      }
      if (this.#error !== undefined) throw this.#error;
    } finally {
      this.#end();
    }
  }

  async #next(): Promise<readonly StoreEvent[]> {
    const { cache, lagBytesMax } = this.#source;
    if (this.#position >= cache.revision) {
      this.#waiting = Promise.withResolvers<void>();
      await this.#waiting.promise;
      return [];
    }
    if (this.#positionBytes !== undefined && cache.totalBytes - this.#positionBytes > lagBytesMax) {
      throw new StoreError("overflow", `watcher of ${this.prefix} fell ${lagBytesMax} bytes behind; list again`);
    }
    if (this.#position >= cache.windowStart) return this.#fromWindow();
    const batch = this.#fromFile();
    if (batch.length === 0) await setImmediate();
    return batch;
  }

  #fromWindow(): readonly StoreEvent[] {
    const { cache } = this.#source;
    const events = cache.eventsAfter(this.#position, deliveryMax);
    this.#position += events.length;
    // What is left of the window is small against the bound, so it is not subtracted.
    this.#positionBytes = cache.totalBytes;
    return events.filter(({ row }) => row.key.startsWith(this.prefix));
  }

  #fromFile(): readonly StoreEvent[] {
    const { cache, reader } = this.#source;
    const after = this.#position;
    const through = Math.min(after + historyWindow, cache.revision);
    const batch = reader.events({ prefix: this.prefix, after, through });
    // Asked after the read: had compaction come by in between, the batch might lack events.
    if (reader.compactedRevision() > after) {
      throw new StoreError("compacted", `revision ${after} has been compacted; list again`);
    }
    if (this.#positionBytes !== undefined) {
      const share = (through - after) / (cache.revision - after);
      this.#positionBytes += share * (cache.totalBytes - this.#positionBytes);
    }
    this.#position = through;
    return batch;
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#source.unsubscribe(this);
    this.#waiting?.resolve();
    this.#waiting = undefined;
  }
}
