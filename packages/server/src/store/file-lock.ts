import { DatabaseSync } from "node:sqlite";
import { withStoreErrors } from "./sqlite-error.ts";

/**
 * Takes the lock that keeps a second process off the store, and returns its release. Node cannot lock files, SQLite can:
 * an open write transaction on a file of its own holds a kernel lock that ends with the process, however that ends.
 */
export function lockFile(path: string): () => void {
  return withStoreErrors(path, () => {
    const database = new DatabaseSync(`${path}.lock`, { timeout: 0 });
    try {
      database.exec("BEGIN IMMEDIATE");
    } catch (error) {
      database.close();
      throw error;
    }
    return () => database.close();
  });
}
