import type { DatabaseSync, SQLOutputValue, StatementSync } from "node:sqlite";
import { checksumOf } from "./log-writer.ts";
import type { Row, StoreEvent } from "./store.ts";
import { StoreError } from "./store-error.ts";

/** A row as loaded at start, with the moment at which it expires (0: never). */
export interface LoadedRow {
  readonly row: Row;
  readonly expiresAtMs: number;
}

const columns = "revision, key, create_revision, previous_revision, deleted, expires_at_ms, checksum, value";

/** Comes after everything that may follow a prefix: no key contains the greatest code point. */
export const afterPrefix = "\u{10ffff}";

type Columns = Record<string, SQLOutputValue>;

/** Reads what is no longer, or not yet, in memory. Every call is one bounded, indexed, synchronous read. */
export class LogReader {
  readonly #path: string;
  readonly #newest: StatementSync;
  readonly #compacted: StatementSync;
  readonly #load: StatementSync;
  readonly #listAt: StatementSync;
  readonly #events: StatementSync;

  constructor(database: DatabaseSync, path: string) {
    this.#path = path;
    this.#newest = database.prepare("SELECT seq AS revision FROM sqlite_sequence WHERE name = 'log'");
    this.#compacted = database.prepare("SELECT revision FROM compaction WHERE id = 1");
    // The inner query reads the index alone; CROSS keeps SQLite from turning the order of the two around.
    this.#load = database.prepare(
      `SELECT l.* FROM (SELECT max(revision) AS newest FROM log GROUP BY key)
       CROSS JOIN log AS l ON l.revision = newest WHERE l.deleted = 0`,
    );
    this.#listAt = database.prepare(
      `SELECT ${columns}, max(revision) FROM log WHERE key >= ? AND key > ? AND key < ? AND revision <= ?
       GROUP BY key HAVING deleted = 0 ORDER BY key LIMIT ?`,
    );
    // The plus keeps SQLite on the primary key: a window of revisions is small, a prefix may be everything.
    this.#events = database.prepare(
      `SELECT n.revision, n.key, n.create_revision, n.previous_revision, n.deleted, n.checksum, n.value,
              o.revision AS o_revision, o.create_revision AS o_create_revision,
              o.previous_revision AS o_previous_revision, o.checksum AS o_checksum, o.value AS o_value
       FROM log AS n LEFT JOIN log AS o ON o.revision = n.previous_revision AND o.deleted = 0
       WHERE n.revision > ? AND n.revision <= ? AND +n.key >= ? AND +n.key < ? ORDER BY n.revision`,
    );
  }

  /** The newest revision in the file. */
  newestRevision(): number {
    return Number(this.#newest.get()?.["revision"] ?? 0);
  }

  /** How far the file is compacted. */
  compactedRevision(): number {
    return Number(this.#compacted.get()?.["revision"]);
  }

  /** The newest version of every key that exists. */
  *load(): Generator<LoadedRow> {
    for (const found of this.#load.iterate()) {
      yield { row: this.#rowOf(found), expiresAtMs: Number(found["expires_at_ms"]) };
    }
  }

  /** The state under a prefix as of a revision, in key order. */
  listAt(query: { prefix: string; afterKey: string; revision: number; limit: number }): Row[] {
    const { prefix, afterKey, revision, limit } = query;
    const found = this.#listAt.all(prefix, afterKey, `${prefix}${afterPrefix}`, revision, limit);
    return found.map((row) => this.#rowOf(row));
  }

  /** The events under a prefix in a window of revisions, first excluded, last included. */
  events({ prefix, after, through }: { prefix: string; after: number; through: number }): StoreEvent[] {
    const found = this.#events.all(after, through, prefix, `${prefix}${afterPrefix}`);
    return found.map((event) => {
      const row = this.#rowOf(event);
      if (event["o_revision"] === null) return { row };
      const previous = this.#rowOf({
        key: event["key"] as SQLOutputValue,
        revision: event["o_revision"] as SQLOutputValue,
        create_revision: event["o_create_revision"] as SQLOutputValue,
        previous_revision: event["o_previous_revision"] as SQLOutputValue,
        deleted: 0,
        checksum: event["o_checksum"] as SQLOutputValue,
        value: event["o_value"] as SQLOutputValue,
      });
      return { row, previous };
    });
  }

  #rowOf(found: Columns): Row {
    const key = found["key"] as string;
    const value = found["value"] as Uint8Array;
    const revision = Number(found["revision"]);
    if (checksumOf(key, value) !== found["checksum"]) {
      throw new StoreError("corrupt", `store ${this.#path} is damaged at revision ${revision} of ${key}`);
    }
    return {
      key,
      revision,
      createRevision: Number(found["create_revision"]),
      previousRevision: Number(found["previous_revision"]),
      value,
      deleted: found["deleted"] === 1,
    };
  }
}
