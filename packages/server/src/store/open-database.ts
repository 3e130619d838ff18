import { chmodSync, closeSync, openSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { lockFile } from "./file-lock.ts";
import { configureWriter, ensureSchema } from "./schema.ts";
import { withStoreErrors } from "./sqlite-error.ts";
import { StoreError } from "./store-error.ts";

/** An open file, ready to be read; `release` closes it and gives up the lock. */
export interface OpenDatabase {
  readonly database: DatabaseSync;
  readonly release: () => void;
}

/** The path that stands for a store without a file. */
export const inMemory = ":memory:";

/** Locks, opens and checks the file, and makes the tables where there are none. */
export function openDatabase(path: string, options: { maxSizeBytes?: number }): OpenDatabase {
  if (path === inMemory) {
    const database = new DatabaseSync(inMemory);
    ensureSchema(database, path);
    return { database, release: () => database.close() };
  }
  createPrivately(path);
  const unlock = lockFile(path);
  let database: DatabaseSync | undefined;
  const release = (): void => {
    database?.close();
    unlock();
  };
  try {
    database = withStoreErrors(path, () => openFile(path, options));
    return { database, release };
  } catch (error) {
    release();
    throw error;
  }
}

function openFile(path: string, options: { maxSizeBytes?: number }): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: 5_000 });
  try {
    configureWriter(database, options);
    ensureSchema(database, path);
    assertWhole(database, path);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Throws `corrupt` for a file whose pages do not fit together. */
export function assertWhole(database: DatabaseSync, path: string): void {
  const { quick_check: verdict } = database.prepare("PRAGMA quick_check(1)").get() ?? {};
  if (verdict !== "ok") throw new StoreError("corrupt", `store ${path} is damaged: ${String(verdict)}`);
}

/** The file holds everything there is to know, so only its owner may read it. */
function createPrivately(path: string): void {
  try {
    closeSync(openSync(path, "a", 0o600));
    chmodSync(path, 0o600);
    closeSync(openSync(`${path}.lock`, "a", 0o600));
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const full = code === "ENOSPC" || code === "EDQUOT";
    throw new StoreError(full ? "full" : "read-only", `store ${path} cannot be written: ${message}`, { cause: error });
  }
}
