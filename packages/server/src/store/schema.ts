import type { DatabaseSync } from "node:sqlite";
import { StoreError } from "./store-error.ts";

/** Marks a file as ours ("ASBX"), so that a foreign database is refused rather than changed. */
const applicationId = 0x41534258;

/** Raised with every change of the tables. A release that reads a later format than the one before it differs in this number. */
export const storeFormat = 1;

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
  PRAGMA user_version = ${storeFormat};
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

/** Makes the tables in an empty file; refuses a file that is not ours or has another format, older or newer. */
export function ensureSchema(database: DatabaseSync, path: string): void {
  const id = Number(database.prepare("PRAGMA application_id").get()?.["application_id"]);
  const version = Number(database.prepare("PRAGMA user_version").get()?.["user_version"]);
  const count = Number(database.prepare("SELECT count(*) AS n FROM sqlite_master").get()?.["n"]);
  if (id === 0 && count === 0) {
    database.exec(`BEGIN IMMEDIATE; ${tables} COMMIT;`);
    return;
  }
  if (id !== applicationId) throw new StoreError("corrupt", `${path} is not a store of this program`);
  if (version !== storeFormat) {
    throw new StoreError(
      "corrupt",
      `${path} has format ${version}, and this version of agent-sandbox reads format ${storeFormat} alone; start it with the version that wrote it`,
    );
  }
}

/** Where SQLite keeps the two numbers that a file is known by; both are four bytes, most significant first. */
const versionAt = 60;
const idAt = 68;

/** How many bytes of a file `fileVersion` looks at. */
export const fileHeaderBytes = 100;

/** The version of the tables in a store's file by its first bytes, without opening it; undefined for what is no store of this program. */
export function fileVersion(head: Buffer): number | undefined {
  if (head.length < fileHeaderBytes || head.readUInt32BE(idAt) !== applicationId) return undefined;
  return head.readUInt32BE(versionAt);
}
