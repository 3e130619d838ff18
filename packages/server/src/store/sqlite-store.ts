import { setImmediate } from "node:timers/promises";
import { packBatch, type TimedWrite, type WriteOutcome, type WriterReply, type WriterRequest } from "./batch.ts";
import { type Retention, retentionDefault, startCompactor } from "./compactor.ts";
import { Expiry, type StoreClock } from "./expiry.ts";
import { afterPrefix, LogReader } from "./log-reader.ts";
import { LogWatch, type WatchSource } from "./log-watch.ts";
import { inMemory, type OpenDatabase, openDatabase } from "./open-database.ts";
import { withStoreErrors } from "./sqlite-error.ts";
import type { ListQuery, ListResult, Row, Store, StoreEvent, Watch, WatchQuery, Write } from "./store.ts";
import { StoreError } from "./store-error.ts";
import { WatchCache, type WindowBounds } from "./watch-cache.ts";
import { type Failpoint, inlineWriter, threadWriter, type Writer, type WriterThread } from "./writer.ts";

/** How to open a store. */
export interface StoreOptions {
  /** The file, or `:memory:` for one that ends with the process and needs no thread. */
  readonly path: string;
  readonly clock: StoreClock;
  /** The file grows to at most this; beyond it writes are `full`. Default: the disk. */
  readonly maxSizeBytes?: number;
  /** Default: five minutes and 100,000 revisions. */
  readonly retention?: Retention;
  /** Events kept in memory for watchers; default 10,000 and 8 MiB. */
  readonly window?: WindowBounds;
  /** A watcher further behind than this is closed with `overflow`; default 64 MiB. */
  readonly watchLagBytesMax?: number;
  /** Called with a failure that no caller waits for: of compaction or expiry. */
  readonly onError?: (error: unknown) => void;
  /** The writer's thread where it was started before; default: it is started here. */
  readonly writerThread?: WriterThread;
  /** Ends the process at a chosen moment; for crash tests. */
  readonly failpoint?: Failpoint;
}

/** A thousand writes of 1.5 kB are one transaction of a few milliseconds; beyond that, others should get their turn. */
const batchWritesMax = 1_024;
const batchBytesMax = 8 * 1024 * 1024;

/** Ten seconds of writes at full speed, within what a small machine can spare. */
const windowDefault: WindowBounds = { eventsMax: 10_000, bytesMax: 8 * 1024 * 1024 };
const watchLagBytesDefault = 64 * 1024 * 1024;

/** Opens a store, or throws a `StoreError`: `locked`, `read-only`, `full` or `corrupt`. */
export function openStore(options: StoreOptions): Store {
  const { path } = options;
  const opened = openDatabase(path, options);
  try {
    return withStoreErrors(path, () => new SqliteStore(opened, options));
  } catch (error) {
    opened.release();
    throw error;
  }
}

interface PendingWrite {
  readonly write: TimedWrite;
  readonly resolve: (row: Row) => void;
  readonly reject: (error: unknown) => void;
}

interface PendingCompaction {
  readonly toRevision: number;
  readonly resolve: (reached: number) => void;
  readonly reject: (error: unknown) => void;
}

class SqliteStore implements Store {
  readonly #path: string;
  readonly #clock: StoreClock;
  readonly #onError: (error: unknown) => void;
  readonly #release: () => void;
  readonly #reader: LogReader;
  readonly #cache: WatchCache;
  readonly #writer: Writer;
  readonly #expiry: Expiry;
  readonly #stopCompactor: () => void;
  readonly #source: WatchSource;
  /** The watches by prefix, so that a write looks at every prefix once and not at every watch. */
  readonly #watches = new Map<string, Set<LogWatch>>();
  /** Bound: the callers that wait for an answer, which the API server limits. */
  #pending: PendingWrite[] = [];
  #compactions: PendingCompaction[] = [];
  #compactedRevision: number;
  #running: Promise<void> | undefined;
  #closed: StoreError | undefined;

  constructor(opened: OpenDatabase, options: StoreOptions) {
    const { path, clock, retention = retentionDefault, window = windowDefault, onError = () => {} } = options;
    this.#path = path;
    this.#clock = clock;
    this.#onError = onError;
    this.#release = opened.release;
    this.#reader = new LogReader(opened.database, path);
    this.#compactedRevision = this.#reader.compactedRevision();
    this.#cache = new WatchCache(this.#reader.newestRevision(), window);
    this.#expiry = new Expiry(clock, (key, revision) => this.#expire(key, revision));
    for (const { row, expiresAtMs } of this.#reader.load()) {
      this.#cache.load(row);
      this.#expiry.set(row.key, row.revision, expiresAtMs);
    }
    this.#source = {
      cache: this.#cache,
      reader: this.#reader,
      lagBytesMax: options.watchLagBytesMax ?? watchLagBytesDefault,
      unsubscribe: (watch) => this.#unsubscribe(watch),
    };
    this.#writer =
      path === inMemory ? inlineWriter(opened.database, path) : threadWriter(options, options.writerThread);
    this.#stopCompactor = startCompactor({
      clock,
      retention,
      revision: () => this.revision,
      compact: (toRevision) => void this.compact(toRevision).catch(onError),
    });
  }

  get revision(): number {
    return this.#cache.revision;
  }

  get compactedRevision(): number {
    return this.#compactedRevision;
  }

  append(write: Write): Promise<Row> {
    return new Promise((resolve, reject) => {
      if (this.#closed !== undefined) throw this.#closed;
      assertKey(write.key);
      // The newest revision only grows, so a mismatch with an older expectation is final; others the writer judges.
      const current = this.#cache.get(write.key)?.revision ?? 0;
      if (write.expectedRevision < current) throw conflict(write.key, write.expectedRevision, current);
      const expiresAtMs = write.ttlMs === undefined ? 0 : this.#clock.nowMs() + write.ttlMs;
      this.#pending.push({ write: { ...write, value: ownBytes(write.value), expiresAtMs }, resolve, reject });
      this.#running ??= this.#run();
    });
  }

  get(key: string): Row | undefined {
    return this.#cache.get(key);
  }

  list({
    prefix,
    atRevision = this.revision,
    limit = Number.MAX_SAFE_INTEGER - 1,
    afterKey = "",
  }: ListQuery): ListResult {
    this.#assertRevision(atRevision);
    const rows = this.#rowsAt({ prefix, afterKey, limit, revision: atRevision });
    const more = rows.length > limit;
    return { revision: atRevision, rows: more ? rows.slice(0, limit) : rows, more };
  }

  watch({ prefix, afterRevision = this.revision }: WatchQuery): Watch {
    if (this.#closed !== undefined) throw this.#closed;
    this.#assertRevision(afterRevision);
    const watch = new LogWatch(prefix, afterRevision, this.#source);
    const group = this.#watches.get(prefix);
    if (group === undefined) this.#watches.set(prefix, new Set([watch]));
    else group.add(watch);
    return watch;
  }

  compact(toRevision: number): Promise<number> {
    return new Promise((resolve, reject) => {
      if (this.#closed !== undefined) throw this.#closed;
      if (toRevision > this.revision) throw futureRevision(toRevision, this.revision);
      this.#compactions.push({ toRevision, resolve, reject });
      this.#running ??= this.#run();
    });
  }

  async close(): Promise<void> {
    if (this.#closed?.code === "closed") return;
    const failed = this.#closed !== undefined;
    this.#stop(new StoreError("closed", `store ${this.#path} is closed`));
    await this.#running;
    if (!failed) await this.#writer.send({ do: "close" });
    this.#release();
  }

  /** The one loop that talks to the writer; it runs while there is something to do. */
  async #run(): Promise<void> {
    // Writers of the same turn of the event loop share the first batch: requests that came together wait for the disk together.
    await setImmediate();
    while (this.#pending.length > 0 || this.#compactions.length > 0) {
      if (this.#pending.length > 0) await this.#appendBatch(this.#takeBatch());
      const compaction = this.#compactions[0];
      if (compaction !== undefined) await this.#compactStep(compaction);
    }
    this.#running = undefined;
  }

  #takeBatch(): PendingWrite[] {
    let bytes = 0;
    let count = 0;
    for (const { write } of this.#pending) {
      bytes += write.value.byteLength;
      if (count === batchWritesMax || (bytes > batchBytesMax && count > 0)) break;
      count += 1;
    }
    return this.#pending.splice(0, count);
  }

  async #appendBatch(batch: readonly PendingWrite[]): Promise<void> {
    const reply = await this.#send({ do: "append", batch: packBatch(batch.map(({ write }) => write)) });
    if (reply instanceof StoreError) {
      for (const { reject } of batch) reject(reply);
      return;
    }
    if (reply.kind !== "appended") throw new Error(`bug: writer answered ${reply.kind} to append`);
    for (const [index, pending] of batch.entries()) this.#finish(pending, reply.outcomes[index] as WriteOutcome);
  }

  #finish({ write, resolve, reject }: PendingWrite, outcome: WriteOutcome): void {
    const { key, value, expectedRevision, expiresAtMs } = write;
    if ("conflictWith" in outcome) {
      reject(conflict(key, expectedRevision, outcome.conflictWith));
      return;
    }
    const row: Row = { key, ...outcome, value, deleted: write.delete ?? false };
    this.#publish(this.#cache.apply(row));
    this.#expiry.set(key, row.revision, expiresAtMs);
    resolve(row);
  }

  #publish(event: StoreEvent): void {
    for (const [prefix, group] of this.#watches) {
      if (!event.row.key.startsWith(prefix)) continue;
      for (const watch of group) watch.notify(event, this.#cache.totalBytes);
    }
  }

  async #compactStep(compaction: PendingCompaction): Promise<void> {
    const { toRevision, resolve, reject } = compaction;
    const reply = await this.#send({ do: "compact", toRevision });
    if (reply instanceof StoreError) reject(reply);
    else if (reply.kind !== "compacted") throw new Error(`bug: writer answered ${reply.kind} to compact`);
    else {
      this.#compactedRevision = reply.revision;
      if (reply.revision < toRevision && this.#closed === undefined) return;
      resolve(reply.revision);
    }
    this.#compactions.shift();
  }

  /** Full and read-only may pass; after any other failure the file is in doubt until it is opened again. */
  async #send(request: WriterRequest): Promise<Exclude<WriterReply, { kind: "failed" }> | StoreError> {
    if (this.#closed !== undefined && this.#closed.code !== "closed") return this.#closed;
    const reply = await this.#writer.send(request).catch((error: StoreError) => error);
    const error =
      reply instanceof Error ? reply : reply.kind === "failed" ? new StoreError(reply.code, reply.message) : undefined;
    if (error === undefined) return reply as Exclude<WriterReply, { kind: "failed" }>;
    if (error.code !== "full" && error.code !== "read-only") this.#stop(error);
    return error;
  }

  #stop(reason: StoreError): void {
    this.#closed = reason;
    this.#stopCompactor();
    this.#expiry.close();
    for (const group of this.#watches.values()) for (const watch of group) watch.fail(reason);
  }

  #expire(key: string, revision: number): void {
    const row = this.#cache.get(key);
    if (row?.revision !== revision) return;
    this.append({ key, value: row.value, expectedRevision: revision, delete: true }).catch((error: unknown) => {
      if (error instanceof StoreError && error.code === "conflict") return;
      this.#onError(error);
    });
  }

  #rowsAt(query: { prefix: string; afterKey: string; limit: number; revision: number }): Row[] {
    if (query.revision === this.revision) return this.#cache.list(query);
    if (query.revision >= this.#cache.windowStart) return this.#cache.listAt(query);
    const rows = withStoreErrors(this.#path, () => this.#reader.listAt({ ...query, limit: query.limit + 1 }));
    // The writer may have compacted further than it has told us yet; asked after the read, this notices.
    const compacted = this.#reader.compactedRevision();
    if (compacted > query.revision) throw compactedError(query.revision, compacted);
    return rows;
  }

  #assertRevision(revision: number): void {
    if (revision > this.revision) throw futureRevision(revision, this.revision);
    if (revision >= this.#compactedRevision) return;
    throw compactedError(revision, this.#compactedRevision);
  }

  #unsubscribe(watch: LogWatch): void {
    const group = this.#watches.get(watch.prefix);
    if (group?.delete(watch) && group.size === 0) this.#watches.delete(watch.prefix);
  }
}

function conflict(key: string, expected: number, currentRevision: number): StoreError {
  return new StoreError("conflict", `${key} is at revision ${currentRevision}, not ${expected}`, { currentRevision });
}

function futureRevision(revision: number, newest: number): StoreError {
  return new StoreError("future-revision", `revision ${revision} has not been written; the newest is ${newest}`);
}

function compactedError(revision: number, compacted: number): StoreError {
  return new StoreError("compacted", `revision ${revision} is older than the compacted revision ${compacted}`);
}

/** SQLite stores keys as UTF-8 and ranges end at the greatest code point, so neither may be spoilt. */
function assertKey(key: string): void {
  if (key === "" || !key.isWellFormed() || key.includes("\0") || key.includes(afterPrefix)) {
    throw new Error(`bug: ${JSON.stringify(key)} cannot be a key`);
  }
}

/** A view into a larger buffer would keep all of that alive for as long as the row lives. */
function ownBytes(value: Uint8Array): Uint8Array {
  return value.byteLength === value.buffer.byteLength ? value : new Uint8Array(value);
}
