/**
 * The revisioned log as its users see it. Rows are immutable and shared: while a row is in memory, `get`, `list` and
 * `watch` hand out the same object, so it may be the key of a `WeakMap` that caches what was decoded from it.
 *
 * Invariant: revisions strictly increase in commit order, and an acknowledged write is in every later read.
 * Invariant: a watch delivers every event after its start exactly once, in order, or ends with an error.
 */

/** One version of one key. */
export interface Row {
  /** `/registry/<group or "core">/<resource>/[<namespace>/]<name>`. */
  readonly key: string;
  /** The revision at which this version was written. */
  readonly revision: number;
  /** The revision at which the key last came into being. */
  readonly createRevision: number;
  /** The version this one replaced, tombstones included; 0 when there was none. */
  readonly previousRevision: number;
  /** The bytes as written; for a tombstone, the bytes the deletion was written with. Never changed by anyone. */
  readonly value: Uint8Array;
  /** True for a tombstone, which `get` and `list` never return. */
  readonly deleted: boolean;
}

/** One change of one key. */
export interface Write {
  readonly key: string;
  /** Belongs to the store from here on. */
  readonly value: Uint8Array;
  /** The revision this write replaces; 0 means that the key must not exist. Otherwise the write is a `conflict`. */
  readonly expectedRevision: number;
  /** Writes a tombstone that carries `value`. */
  readonly delete?: boolean;
  /** The store deletes the key by itself this long after this write; default never. Survives a restart. */
  readonly ttlMs?: number;
}

/** Which rows to list. */
export interface ListQuery {
  /** Only keys that start with this. */
  readonly prefix: string;
  /** The state as of this revision; default the newest. */
  readonly atRevision?: number;
  /** At most this many rows; default all. */
  readonly limit?: number;
  /** Only keys greater than this one, for paging. */
  readonly afterKey?: string;
}

/** Rows in key order, as of one revision. */
export interface ListResult {
  readonly revision: number;
  readonly rows: readonly Row[];
  /** True when `limit` cut the list. */
  readonly more: boolean;
}

/** One change as a watcher sees it. */
export interface StoreEvent {
  readonly row: Row;
  /** The version that was replaced; absent when the key did not exist before. */
  readonly previous?: Row;
}

/** Which events to watch. */
export interface WatchQuery {
  readonly prefix: string;
  /** Events with a greater revision are delivered; default the newest revision, that is, only what comes. */
  readonly afterRevision?: number;
}

/**
 * A live stream of events, in batches of one or more. Iterate it once, at your own pace: a watch is a position in the
 * log and buffers nothing. It throws a `StoreError` with code `compacted` (events it still needs are gone), `overflow`
 * (the reader fell further behind than the store's bound in bytes) or `closed` (the store closed).
 */
export interface Watch extends AsyncIterable<readonly StoreEvent[]> {
  /** Every event of this watch up to this revision has been handed to the reader: what a bookmark may claim. */
  readonly revision: number;
  /** Ends the iteration without an error. */
  close(): void;
}

/** A revisioned, watchable key-value log. */
export interface Store {
  /** The newest revision. */
  readonly revision: number;
  /** Lists and watches that start before this revision are `compacted`. */
  readonly compactedRevision: number;
  /** Resolves when the write is durable and visible; rejects with a `StoreError`. */
  append(write: Write): Promise<Row>;
  /** The newest version of a key; never blocks. */
  get(key: string): Row | undefined;
  /** Blocks only for an `atRevision` older than the window of events kept in memory: one indexed read. */
  list(query: ListQuery): ListResult;
  /** Throws `compacted` or `future-revision` at once where the start is not to be had. */
  watch(query: WatchQuery): Watch;
  /** Forgets versions that were replaced at or before this revision. Resolves with the revision reached. */
  compact(toRevision: number): Promise<number>;
  /** Ends watches, waits for writes under way, releases the file. */
  close(): Promise<void>;
}
