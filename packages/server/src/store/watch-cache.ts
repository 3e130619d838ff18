import { compareKeys, SortedKeys } from "./sorted-keys.ts";
import type { Row, StoreEvent } from "./store.ts";

/** The largest window of events kept in memory. */
export interface WindowBounds {
  readonly eventsMax: number;
  readonly bytesMax: number;
}

/** What an event weighs besides its value: key, row and event objects. */
const eventOverheadBytes = 400;

/** How many dropped slots may linger before the array is cut. */
const slackMax = 1024;

/** What an event counts for in bounds that are given in bytes. */
function eventBytes({ row }: StoreEvent): number {
  return row.value.byteLength + eventOverheadBytes;
}

/**
 * The newest version of every key, and the last events in the order they happened.
 * Bound: the window drops its oldest events beyond `WindowBounds`; watchers that still need them read the file.
 *
 * Invariant: the window holds exactly the events with a revision above `windowStart`, without gaps.
 */
export class WatchCache {
  readonly #rows = new Map<string, Row>();
  readonly #keys = new SortedKeys();
  readonly #bounds: WindowBounds;
  #window: (StoreEvent | undefined)[] = [];
  /** Index in `#window` of the first event that counts. */
  #first = 0;
  #windowBytes = 0;
  #revision: number;
  #totalBytes = 0;

  constructor(revision: number, bounds: WindowBounds) {
    this.#revision = revision;
    this.#bounds = bounds;
  }

  /** The newest revision. */
  get revision(): number {
    return this.#revision;
  }

  /** Events after this revision are in memory. */
  get windowStart(): number {
    return this.#revision - (this.#window.length - this.#first);
  }

  /** Bytes of all events since the start, for measuring how far a reader is behind. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  /** The number of keys. */
  get size(): number {
    return this.#rows.size;
  }

  /** The newest version of a key. */
  get(key: string): Row | undefined {
    return this.#rows.get(key);
  }

  /** Puts a row that was there at the start. */
  load(row: Row): void {
    this.#rows.set(row.key, row);
    this.#keys.add(row.key);
  }

  /** Takes the next write and returns its event. */
  apply(row: Row): StoreEvent {
    if (row.revision !== this.#revision + 1) {
      throw new Error(`bug: revision ${row.revision} of ${row.key} follows ${this.#revision}`);
    }
    const previous = this.#rows.get(row.key);
    const event: StoreEvent = previous === undefined ? { row } : { row, previous };
    if (row.deleted) {
      if (this.#rows.delete(row.key)) this.#keys.delete(row.key);
    } else {
      this.#rows.set(row.key, row);
      if (previous === undefined) this.#keys.add(row.key);
    }
    this.#revision = row.revision;
    this.#push(event);
    return event;
  }

  /** The events after a revision that the window holds, at most `limit` of them, filter applied after. */
  eventsAfter(revision: number, limit: number): readonly StoreEvent[] {
    const from = this.#first + (revision - this.windowStart);
    return this.#window.slice(from, from + limit) as StoreEvent[];
  }

  /** The rows under a prefix at the newest revision, one more than `limit` where there are more. */
  list({ prefix, afterKey, limit }: { prefix: string; afterKey: string; limit: number }): Row[] {
    const rows: Row[] = [];
    for (const key of this.#keys.range(prefix, afterKey)) {
      rows.push(this.#rows.get(key) as Row);
      if (rows.length > limit) break;
    }
    return rows;
  }

  /** As `list`, at a revision inside the window: the newest state with the events since then taken back. */
  listAt(query: { prefix: string; afterKey: string; limit: number; revision: number }): Row[] {
    const { prefix, afterKey, limit, revision } = query;
    const then = new Map<string, Row | undefined>();
    for (const { row, previous } of this.eventsAfter(revision, Number.POSITIVE_INFINITY)) {
      if (row.key.startsWith(prefix) && !then.has(row.key)) then.set(row.key, previous);
    }
    const rows: Row[] = [];
    for (const key of this.#keys.range(prefix, afterKey)) if (!then.has(key)) rows.push(this.#rows.get(key) as Row);
    for (const row of then.values()) if (row !== undefined && compareKeys(row.key, afterKey) > 0) rows.push(row);
    if (then.size > 0) rows.sort((a, b) => compareKeys(a.key, b.key));
    return rows.slice(0, limit + 1);
  }

  #push(event: StoreEvent): void {
    const bytes = eventBytes(event);
    this.#window.push(event);
    this.#windowBytes += bytes;
    this.#totalBytes += bytes;
    const { eventsMax, bytesMax } = this.#bounds;
    while (this.#window.length - this.#first > eventsMax || this.#windowBytes > bytesMax) {
      this.#windowBytes -= eventBytes(this.#window[this.#first] as StoreEvent);
      // The slot is emptied at once, so that what it held can be collected.
      this.#window[this.#first] = undefined;
      this.#first += 1;
    }
    if (this.#first > slackMax) {
      this.#window = this.#window.slice(this.#first);
      this.#first = 0;
    }
  }
}
