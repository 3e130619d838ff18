import { backup, DatabaseSync } from "node:sqlite";
import { assertWhole } from "./open-database.ts";
import { storeErrorOf, withStoreErrors } from "./sqlite-error.ts";

/** All pages in one step are one read transaction: with smaller steps a write of another process in between starts the copy over. */
const everyPage = 2 ** 31 - 1;

/**
 * Copies a store to a file that is not there or is empty, as it is at one moment, by SQLite's own online backup; processes that have it open write on meanwhile.
 * Throws a `StoreError`; the copy is checked.
 */
export async function copyDatabase(file: string, target: string): Promise<void> {
  const source = withStoreErrors(file, () => new DatabaseSync(file, { readOnly: true, timeout: 5_000 }));
  try {
    await backup(source, target, { rate: everyPage });
  } catch (error) {
    throw storeErrorOf(error, `${file}, which is copied to ${target},`);
  } finally {
    source.close();
  }
  const copy = withStoreErrors(target, () => new DatabaseSync(target, { readOnly: true }));
  try {
    assertWhole(copy, target);
  } finally {
    copy.close();
  }
}
