import type { DatabaseSync } from "node:sqlite";
import { StoreError } from "./store-error.ts";

/** Marks a file as ours ("ASBX"), so that a foreign database is refused rather than changed. */
const applicationId = 0x41534258;

/** Raised with every change of the tables. */
const schemaVersion = 1;

/**
 * The revision is the row's id. A write names the version it replaces, so two writes over the same version collide in
 * the unique index. `checksum` covers key and value: SQLite itself does not notice a flipped bit inside a value.
 */
const tables = `
  CREATE TABLE log (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    create_revision INTEGER NOT NULL,
    previous_revision INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    value BLOB NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX log_key_previous ON log (key, previous_revision);
  CREATE TABLE compaction (id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL) STRICT;
  INSERT INTO compaction (id, revision) VALUES (1, 0);
  PRAGMA application_id = ${applicationId};
  PRAGMA user_version = ${schemaVersion};
`;

/** 16 MiB of log between checkpoints: each costs two more syncs, so four times SQLite's default makes them rare. */
const checkpointPages = 4096;

/** Settings of a connection that writes. `synchronous = FULL` is what makes an answered write survive power loss. */
export function configureWriter(database: DatabaseSync, { maxSizeBytes }: { maxSizeBytes?: number }): void {
  database.exec(
    `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = ${checkpointPages};`,
  );
  if (maxSizeBytes === undefined) return;
  const pageSize = Number(database.prepare("PRAGMA page_size").get()?.["page_size"]);
  database.exec(`PRAGMA max_page_count = ${Math.max(1, Math.floor(maxSizeBytes / pageSize))}`);
}

/** Makes the tables in an empty file; refuses a file that is not ours or is from a later version. */
export function ensureSchema(database: DatabaseSync, path: string): void {
  const id = Number(database.prepare("PRAGMA application_id").get()?.["application_id"]);
  const version = Number(database.prepare("PRAGMA user_version").get()?.["user_version"]);
  const count = Number(database.prepare("SELECT count(*) AS n FROM sqlite_master").get()?.["n"]);
  if (id === 0 && count === 0) {
    database.exec(`BEGIN IMMEDIATE; ${tables} COMMIT;`);
    return;
  }
  if (id !== applicationId) throw new StoreError("corrupt", `${path} is not a store of this program`);
  if (version !== schemaVersion) {
    throw new StoreError("corrupt", `${path} has format ${version}; this program reads ${schemaVersion}; upgrade it`);
  }
}
