import type { DatabaseSync, StatementSync } from "node:sqlite";
import { crc32 } from "node:zlib";
import { type Batch, type TimedWrite, unpackBatch, type WriteOutcome } from "./batch.ts";

/** The moments between two side effects of the writer, where a crash test may end the process. Exported for tests. */
export const writerSteps = [
  "append-received",
  "append-begun",
  "append-inserted",
  "append-committed",
  "compact-begun",
  "compact-deleted",
  "compact-recorded",
  "compact-committed",
] as const;

/** One of `writerSteps`. */
export type WriterStep = (typeof writerSteps)[number];

/** Versions looked at per compaction transaction: a few milliseconds, so that writes are never held up for longer. */
const compactionBatch = 500;

interface Head {
  readonly revision: number;
  readonly create_revision: number;
  readonly deleted: number;
}

/**
 * The only code that changes the file. Synchronous; runs in the writer's thread, or in place for a store in memory.
 *
 * Invariant: a batch commits as a whole; each write in it is judged against the state that the writes before it left.
 */
export class LogWriter {
  readonly #database: DatabaseSync;
  readonly #onStep: (step: WriterStep) => void;
  readonly #head: StatementSync;
  readonly #insert: StatementSync;
  readonly #replaced: StatementSync;
  readonly #remove: StatementSync;
  readonly #record: StatementSync;
  readonly #recorded: StatementSync;

  constructor(database: DatabaseSync, onStep: (step: WriterStep) => void = () => {}) {
    this.#database = database;
    this.#onStep = onStep;
    // The newest version of a key has the greatest previous revision, because each names its predecessor.
    this.#head = database.prepare(
      "SELECT revision, create_revision, deleted FROM log WHERE key = ? ORDER BY previous_revision DESC LIMIT 1",
    );
    this.#insert = database.prepare(
      `INSERT INTO log (key, create_revision, previous_revision, deleted, expires_at_ms, checksum, value)
       VALUES (?, coalesce(?, (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'log'), 1), ?, ?, ?, ?, ?)`,
    );
    this.#replaced = database.prepare(
      `SELECT revision, previous_revision, deleted FROM log
       WHERE revision > ? AND revision <= ? ORDER BY revision LIMIT ${compactionBatch}`,
    );
    this.#remove = database.prepare("DELETE FROM log WHERE revision = ?");
    this.#record = database.prepare("UPDATE compaction SET revision = ? WHERE id = 1");
    this.#recorded = database.prepare("SELECT revision FROM compaction WHERE id = 1");
  }

  /** Commits what does not conflict; says for each write what became of it. */
  append(batch: Batch): WriteOutcome[] {
    this.#onStep("append-received");
    return this.#transaction("append-committed", () => {
      this.#onStep("append-begun");
      return Array.from(unpackBatch(batch), (write) => this.#appendOne(write));
    });
  }

  #appendOne(write: TimedWrite): WriteOutcome {
    // node:sqlite types a row by its columns' values; the statement above names the columns.
    const head = this.#head.get(write.key) as unknown as Head | undefined;
    const exists = head !== undefined && head.deleted === 0;
    const current = exists ? head.revision : 0;
    if (current !== write.expectedRevision) return { conflictWith: current };
    const previousRevision = head?.revision ?? 0;
    const { lastInsertRowid } = this.#insert.run(
      write.key,
      exists ? head.create_revision : null,
      previousRevision,
      write.delete === true ? 1 : 0,
      write.expiresAtMs,
      checksumOf(write.key, write.value),
      write.value,
    );
    const revision = Number(lastInsertRowid);
    this.#onStep("append-inserted");
    return { revision, createRevision: exists ? head.create_revision : revision, previousRevision };
  }

  /**
   * Takes one step towards `toRevision` and returns how far compaction has come: a step looks at the next few versions
   * in order and removes what each of them replaced, and itself where it is a tombstone.
   * Postconditions: the newest version of every key that exists is kept; so is whatever a list at, or a watch from,
   * the returned revision needs.
   */
  compact(toRevision: number): number {
    return this.#transaction("compact-committed", () => {
      this.#onStep("compact-begun");
      const from = Number(this.#recorded.get()?.["revision"]);
      const rows = this.#replaced.all(from, toRevision);
      for (const row of rows) {
        this.#remove.run(Number(row["previous_revision"]));
        if (row["deleted"] === 1) this.#remove.run(Number(row["revision"]));
      }
      this.#onStep("compact-deleted");
      const reached = rows.length < compactionBatch ? toRevision : Number(rows.at(-1)?.["revision"]);
      if (reached > from) this.#record.run(reached);
      this.#onStep("compact-recorded");
      return Math.max(from, reached);
    });
  }

  #transaction<R>(committed: WriterStep, action: () => R): R {
    this.#database.exec("BEGIN IMMEDIATE");
    try {
      const result = action();
      this.#database.exec("COMMIT");
      this.#onStep(committed);
      return result;
    } catch (error) {
      // SQLite has rolled back by itself after some errors, a full disk among them.
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      throw error;
    }
  }
}

/** Covers what SQLite's own page structure does not. */
export function checksumOf(key: string, value: Uint8Array): number {
  return crc32(value, crc32(key));
}
