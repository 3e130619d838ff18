import { spawnSync } from "node:child_process";
import { closeSync, openSync, readFileSync, statSync, truncateSync, writeSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { openStore, type StoreOptions } from "./sqlite-store.ts";
import type { Store } from "./store.ts";
import { StoreError } from "./store-error.ts";
import { ManualClock } from "./testing/manual-clock.ts";
import { temporaryDirectory } from "./testing/temporary-directory.ts";

function open(path: string, options: Partial<StoreOptions> = {}): Store {
  return openStore({ path, clock: new ManualClock(), ...options });
}

const fill = (store: Store, index: number): Promise<unknown> =>
  store.append({ key: `/rows/${index}`, value: Buffer.alloc(3_000, `row ${index} `), expectedRevision: 0 });

async function filled(path: string, count: number): Promise<void> {
  const store = open(path);
  await Promise.all(Array.from({ length: count }, (_, index) => fill(store, index)));
  await store.close();
}

function overwrite(path: string, at: number, bytes: Uint8Array): void {
  const file = openSync(path, "r+");
  writeSync(file, bytes, 0, bytes.length, at);
  closeSync(file);
}

function codeOf(action: () => unknown): string | undefined {
  try {
    action();
  } catch (error) {
    if (error instanceof StoreError) return error.code;
    throw error;
  }
  return undefined;
}

test("openStore: a file in use: locked, also within one process", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  const store = open(path);
  expect(codeOf(() => open(path))).toBe("locked");
  await store.close();
  await open(path).close();
});

test("openStore: a file that another process has open: locked, and says so", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  const store = open(path);
  const options = { path, reportPath: join(directory.path, "reports"), seed: 1 };
  const child = new URL("./testing/crash-child.ts", import.meta.url).pathname;
  const { status, stderr } = spawnSync(process.execPath, [child, JSON.stringify(options)], { encoding: "utf8" });
  expect(status).toBe(1);
  expect(stderr).toContain("is in use by another process");
  await store.close();
});

test("openStore: a file: only its owner can read it", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  await filled(path, 1);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test("openStore: a directory that takes no files: read-only", () => {
  // The kernel's own file system refuses new files from everybody, root included.
  expect(codeOf(() => open("/sys/store.db"))).toBe("read-only");
});

test("openStore: a file that is no database: corrupt, and untouched", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  await filled(path, 1);
  overwrite(path, 0, Buffer.from("not a database at all"));
  const before = readFileSync(path);
  expect(codeOf(() => open(path))).toBe("corrupt");
  expect(readFileSync(path).equals(before)).toBe(true);
});

test("openStore: another program's database: corrupt, and untouched", () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  const foreign = new DatabaseSync(path);
  foreign.exec("CREATE TABLE theirs (id INTEGER)");
  foreign.close();
  expect(codeOf(() => open(path))).toBe("corrupt");
  const again = new DatabaseSync(path);
  expect(again.prepare("SELECT count(*) AS n FROM sqlite_master").get()).toEqual({ n: 1 });
  again.close();
});

test("openStore: a flipped bit in a value: corrupt, and says where", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  await filled(path, 20);
  overwrite(path, readFileSync(path).indexOf("row 7 row 7"), Buffer.from("sow"));
  expect(() => open(path)).toThrow(/damaged at revision 8 of \/rows\/7/);
});

test("openStore: a file that lost its end: corrupt", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  await filled(path, 50);
  truncateSync(path, 20 * 4096);
  expect(codeOf(() => open(path))).toBe("corrupt");
});

test("append: no space left: full, keeps what was acknowledged, and goes on when there is space", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  const store = open(path, { maxSizeBytes: 400_000 });
  const written: number[] = [];
  let failure: unknown;
  for (let index = 0; failure === undefined && index < 1_000; index += 1) {
    await fill(store, index).then(
      () => written.push(index),
      (error: unknown) => (failure = error),
    );
  }
  expect(failure).toMatchObject({ code: "full" });
  expect(written.length).toBeGreaterThan(10);
  await expect(fill(store, 2_000)).rejects.toMatchObject({ code: "full" });
  expect(store.list({ prefix: "/rows/" }).rows).toHaveLength(written.length);
  await store.close();
  const larger = open(path);
  expect(larger.list({ prefix: "/rows/" }).rows).toHaveLength(written.length);
  await fill(larger, 2_000);
  expect(larger.revision).toBe(written.length + 1);
  await larger.close();
});

test("close: with writes under way: they are kept", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  const store = open(path);
  const writes = Array.from({ length: 10 }, (_, index) => fill(store, index));
  await store.close();
  await Promise.all(writes);
  const again = open(path);
  expect(again.revision).toBe(10);
  await again.close();
});

test("openStore: a time to live: survives a restart", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "store.db");
  const first = open(path);
  await first.append({ key: "/e", value: Buffer.of(1), expectedRevision: 0, ttlMs: 60_000 });
  await first.close();
  const clock = new ManualClock();
  const second = open(path, { clock });
  clock.advance(100_000);
  await expect.poll(() => second.get("/e"), { timeout: 30_000 }).toBeUndefined();
  await second.close();
});
