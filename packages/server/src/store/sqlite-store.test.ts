import { afterEach, expect, test } from "vitest";
import { openStore, type StoreOptions } from "./sqlite-store.ts";
import type { Row, Store, StoreEvent, Watch } from "./store.ts";
import { ManualClock } from "./testing/manual-clock.ts";

const opened: Store[] = [];
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
});

function memoryStore(options: Partial<StoreOptions> = {}): Store {
  const store = openStore({ path: ":memory:", clock: new ManualClock(), ...options });
  opened.push(store);
  return store;
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = ({ value }: Row): string => new TextDecoder().decode(value);

function create(store: Store, key: string, value = key): Promise<Row> {
  return store.append({ key, value: bytes(value), expectedRevision: 0 });
}

async function take(watch: Watch, count: number): Promise<StoreEvent[]> {
  const events: StoreEvent[] = [];
  for await (const batch of watch) {
    events.push(...batch);
    if (events.length >= count) break;
  }
  return events;
}

test("openStore: a store in memory: opens in a few milliseconds", () => {
  memoryStore();
  const startMs = performance.now();
  memoryStore();
  expect(performance.now() - startMs).toBeLessThan(50);
});

test("append: a new key: gets the next revision and can be read at once", async () => {
  const store = memoryStore();
  const row = await create(store, "/a", "one");
  expect(row).toMatchObject({ key: "/a", revision: 1, createRevision: 1, previousRevision: 0, deleted: false });
  expect(store.get("/a")).toBe(row);
  expect(store.revision).toBe(1);
});

test("append: an update: keeps the revision of the creation", async () => {
  const store = memoryStore();
  await create(store, "/a");
  const row = await store.append({ key: "/a", value: bytes("two"), expectedRevision: 1 });
  expect(row).toMatchObject({ revision: 2, createRevision: 1, previousRevision: 1 });
});

test("append: a key that exists: creating it again is a conflict that says where it is", async () => {
  const store = memoryStore();
  await create(store, "/a");
  await expect(create(store, "/a")).rejects.toMatchObject({ code: "conflict", currentRevision: 1 });
  expect(store.revision).toBe(1);
});

test("append: an expected revision of a key that is gone: conflict with revision 0", async () => {
  const store = memoryStore();
  await expect(store.append({ key: "/a", value: bytes(""), expectedRevision: 7 })).rejects.toMatchObject({
    code: "conflict",
    currentRevision: 0,
  });
});

test("append: two writers over one version in the same batch: one wins", async () => {
  const store = memoryStore();
  await create(store, "/a");
  const results = await Promise.allSettled([
    store.append({ key: "/a", value: bytes("x"), expectedRevision: 1 }),
    store.append({ key: "/a", value: bytes("y"), expectedRevision: 1 }),
  ]);
  expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  expect(text(store.get("/a") as Row)).toBe("x");
});

test("append: deleting and creating again: the new life starts at its own revision", async () => {
  const store = memoryStore();
  await create(store, "/a");
  const gone = await store.append({ key: "/a", value: bytes("last"), expectedRevision: 1, delete: true });
  expect(gone).toMatchObject({ revision: 2, deleted: true });
  expect(store.get("/a")).toBeUndefined();
  expect(await create(store, "/a")).toMatchObject({ revision: 3, createRevision: 3, previousRevision: 2 });
});

test("append: a view into a large buffer: only its own bytes are kept", async () => {
  const store = memoryStore();
  const large = new Uint8Array(1_000_000);
  const row = await store.append({ key: "/a", value: large.subarray(5, 10), expectedRevision: 0 });
  expect(row.value.buffer.byteLength).toBe(5);
});

test("append: after close: rejects with closed", async () => {
  const store = memoryStore();
  await store.close();
  await expect(create(store, "/a")).rejects.toMatchObject({ code: "closed" });
});

test("list: a prefix: rows in key order, pages with limit and afterKey", async () => {
  const store = memoryStore();
  for (const key of ["/b/2", "/a/1", "/b/1", "/b/3", "/c"]) await create(store, key);
  const first = store.list({ prefix: "/b/", limit: 2 });
  expect(first.rows.map(({ key }) => key)).toEqual(["/b/1", "/b/2"]);
  expect(first).toMatchObject({ more: true, revision: 5 });
  const second = store.list({ prefix: "/b/", limit: 2, afterKey: "/b/2", atRevision: first.revision });
  expect(second.rows.map(({ key }) => key)).toEqual(["/b/3"]);
  expect(second.more).toBe(false);
});

test("list: keys beyond the basic plane: memory and file agree on the order", async () => {
  const store = memoryStore({ window: { eventsMax: 1, bytesMax: 1 } });
  for (const key of ["/\u{1f600}", "/\uffee", "/a", "/\u00e4"]) await create(store, key);
  const fromMemory = store.list({ prefix: "/" }).rows.map(({ key }) => key);
  await create(store, "/z");
  const fromFile = store.list({ prefix: "/", atRevision: 4 }).rows.map(({ key }) => key);
  expect(fromMemory).toEqual(["/a", "/\u00e4", "/\uffee", "/\u{1f600}"]);
  expect(fromFile).toEqual(fromMemory);
});

test("list: a revision not yet written: future-revision", () => {
  expect(() => memoryStore().list({ prefix: "/", atRevision: 1 })).toThrow(
    expect.objectContaining({ code: "future-revision" }),
  );
});

test("watch: from the past: delivers what was and then what comes, with the version that was replaced", async () => {
  const store = memoryStore();
  await create(store, "/a/1", "one");
  await create(store, "/b/1");
  const watch = store.watch({ prefix: "/a/", afterRevision: 0 });
  const seen = take(watch, 3);
  await store.append({ key: "/a/1", value: bytes("two"), expectedRevision: 1 });
  await store.append({ key: "/a/1", value: bytes("two"), expectedRevision: 3, delete: true });
  const events = await seen;
  expect(events.map(({ row, previous }) => [row.revision, row.deleted, previous?.revision])).toEqual([
    [1, false, undefined],
    [3, false, 1],
    [4, true, 3],
  ]);
});

test("watch: waiting: its revision follows the store, so that bookmarks move on", async () => {
  const store = memoryStore();
  const watch = store.watch({ prefix: "/a/" });
  const seen = take(watch, 1);
  await Promise.resolve();
  await create(store, "/b/1");
  await create(store, "/b/2");
  expect(watch.revision).toBe(2);
  await create(store, "/a/1");
  expect((await seen).map(({ row }) => row.revision)).toEqual([3]);
});

test("watch: closed by its reader: ends without an error", async () => {
  const store = memoryStore();
  const watch = store.watch({ prefix: "/" });
  const seen = take(watch, 1);
  watch.close();
  expect(await seen).toEqual([]);
});

test("watch: the store closes: throws closed", async () => {
  const store = memoryStore();
  const seen = take(store.watch({ prefix: "/" }), 1);
  await Promise.resolve();
  await store.close();
  await expect(seen).rejects.toMatchObject({ code: "closed" });
});

test("invariant slow-watcher-ends: a reader beyond the bound in bytes gets an overflow", async () => {
  const store = memoryStore({ window: { eventsMax: 2, bytesMax: 10_000 }, watchLagBytesMax: 5_000 });
  const iterator = store.watch({ prefix: "/" })[Symbol.asyncIterator]();
  const first = iterator.next();
  await create(store, "/0");
  await first;
  for (let index = 1; index < 20; index += 1) await create(store, `/${index}`);
  await expect(iterator.next()).rejects.toMatchObject({ code: "overflow" });
});

test("watch: a slow reader within the bound: reads the file and misses nothing", async () => {
  const store = memoryStore({ window: { eventsMax: 2, bytesMax: 10_000 } });
  const iterator = store.watch({ prefix: "/" })[Symbol.asyncIterator]();
  const first = iterator.next();
  await create(store, "/0");
  const revisions = ((await first).value as StoreEvent[]).map(({ row }) => row.revision);
  for (let index = 1; index < 20; index += 1) await create(store, `/${index}`);
  while (revisions.length < 20) {
    for (const { row } of (await iterator.next()).value as StoreEvent[]) revisions.push(row.revision);
  }
  expect(revisions).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
});

test("watch: a start before the compacted revision: compacted, at once", async () => {
  const store = memoryStore();
  await create(store, "/a");
  await create(store, "/b");
  expect(await store.compact(2)).toBe(2);
  expect(() => store.watch({ prefix: "/", afterRevision: 1 })).toThrow(expect.objectContaining({ code: "compacted" }));
});

test("watch: compaction overtakes its reader: compacted", async () => {
  const store = memoryStore({ window: { eventsMax: 1, bytesMax: 10_000 } });
  for (const key of ["/a", "/b", "/c"]) await create(store, key);
  const watch = store.watch({ prefix: "/", afterRevision: 1 });
  await store.compact(2);
  await expect(take(watch, 1)).rejects.toMatchObject({ code: "compacted" });
});

test("compact: keeps the newest versions and what a list at the compacted revision needs", async () => {
  const store = memoryStore({ window: { eventsMax: 1, bytesMax: 1 } });
  await create(store, "/a", "one");
  await store.append({ key: "/a", value: bytes("two"), expectedRevision: 1 });
  await create(store, "/b");
  await store.append({ key: "/b", value: bytes(""), expectedRevision: 3, delete: true });
  await store.append({ key: "/a", value: bytes("three"), expectedRevision: 2 });
  await store.compact(4);
  expect(store.list({ prefix: "/", atRevision: 4 }).rows.map(text)).toEqual(["two"]);
  expect(store.list({ prefix: "/" }).rows.map(text)).toEqual(["three"]);
  expect(() => store.list({ prefix: "/", atRevision: 3 })).toThrow(expect.objectContaining({ code: "compacted" }));
});

test("compact: a key whose tombstone is gone: can be created again", async () => {
  const store = memoryStore();
  await create(store, "/a");
  await store.append({ key: "/a", value: bytes(""), expectedRevision: 1, delete: true });
  await store.compact(2);
  expect(await create(store, "/a")).toMatchObject({ revision: 3, createRevision: 3, previousRevision: 0 });
});

test("compact: runs by itself: keeps the number of revisions and the age it promises", async () => {
  const clock = new ManualClock();
  const store = memoryStore({ clock, retention: { revisionsMin: 3, ageMinMs: 300_000 } });
  for (let index = 0; index < 10; index += 1) await create(store, `/${index}`);
  clock.advance(60_000);
  clock.advance(240_000);
  await create(store, "/x");
  expect(store.compactedRevision).toBe(0);
  clock.advance(60_000);
  await create(store, "/y");
  await expect.poll(() => store.compactedRevision, { timeout: 30_000 }).toBe(8);
});

test("append: with a time to live: the key is deleted after it, and watchers are told", async () => {
  const clock = new ManualClock();
  const store = memoryStore({ clock });
  await store.append({ key: "/e", value: bytes("event"), expectedRevision: 0, ttlMs: 3_600_000 });
  const seen = take(store.watch({ prefix: "/" }), 1);
  clock.advance(3_500_000);
  expect(store.get("/e")).toBeDefined();
  clock.advance(200_000);
  const [event] = await seen;
  expect(event?.row).toMatchObject({ key: "/e", revision: 2, deleted: true });
  expect(text(event?.row as Row)).toBe("event");
});

test("append: an update without a time to live: the key stays", async () => {
  const clock = new ManualClock();
  const store = memoryStore({ clock });
  await store.append({ key: "/e", value: bytes("event"), expectedRevision: 0, ttlMs: 1_000 });
  await store.append({ key: "/e", value: bytes("event"), expectedRevision: 1 });
  clock.advance(60_000);
  await Promise.resolve();
  expect(store.get("/e")).toBeDefined();
});
