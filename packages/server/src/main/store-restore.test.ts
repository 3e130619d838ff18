import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findStoreCopy, restoreStore, undoRestore } from "./store-restore.ts";

const user = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
const [copy, kept] = ["store-of-0.1.1-at-1.sqlite", "store-of-0.1.2-at-2.sqlite"];

let dir: string;
let db: { readonly dbFile: string; readonly user: typeof user };
beforeEach(() => {
  dir = mkdtempSync(path.join(os.tmpdir(), "as-restore-"));
  db = { dbFile: path.join(dir, "store.sqlite"), user };
  write("store.sqlite", "newer");
  write("opened-by", "0.1.2");
  write(copy, "older");
});
afterEach(() => {
  rmSync(dir, { recursive: true });
});

const write = (name: string, text: string): void => writeFileSync(path.join(dir, name), text);
const read = (name: string): string => readFileSync(path.join(dir, name), "utf8");
const restore = (): Promise<void> => restoreStore(db, { copy, to: "0.1.1", kept });
const undo = (): Promise<void> => undoRestore(db, { kept, of: "0.1.2" });

test("store restore: a copy takes the place of the store, which stays under the kept name", async () => {
  expect(await findStoreCopy(db, "0.1.1")).toBe(copy);
  await restore();
  expect([read("store.sqlite"), read(kept), read(copy), read("opened-by")]).toEqual([
    "older",
    "newer",
    "older",
    "0.1.1",
  ]);
});

test("store restore: undone, the kept store is in its place, without the log that the other version left", async () => {
  await restore();
  write("store.sqlite", "older, and written to");
  write("store.sqlite-wal", "a log of the older store");
  write("store.sqlite-shm", "its index");
  await undo();
  expect(readdirSync(dir).toSorted()).toEqual(["opened-by", copy, "store.sqlite"]);
  expect([read("store.sqlite"), read(copy), read("opened-by")]).toEqual(["newer", "older", "0.1.2"]);
});

test("store restore: a store that was not closed is not replaced, and undoing that keeps its log", async () => {
  write("store.sqlite-wal", "written and not yet in the store");
  await expect(restore()).rejects.toThrow(/the store was not closed/);
  await undo();
  expect([read("store.sqlite"), read("store.sqlite-wal")]).toEqual(["newer", "written and not yet in the store"]);
});

test("store restore: one that failed after the copy took the place is undone, too", async () => {
  rmSync(path.join(dir, "opened-by"));
  // The last step fails: what it writes to is a directory.
  mkdirSync(path.join(dir, "opened-by"));
  await expect(restore()).rejects.toThrow(/could not be restored/);
  rmSync(path.join(dir, "opened-by"), { recursive: true });
  await undo();
  expect([read("store.sqlite"), existsSync(path.join(dir, kept))]).toEqual(["newer", false]);
});
