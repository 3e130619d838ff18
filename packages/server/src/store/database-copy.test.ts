import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { copyDatabase } from "./database-copy.ts";
import { fileVersion, storeFormat } from "./schema.ts";
import { openStore } from "./sqlite-store.ts";
import { ManualClock } from "./testing/manual-clock.ts";
import { temporaryDirectory } from "./testing/temporary-directory.ts";

test("copyDatabase: a copy that was made while rows were written is one moment of the store, and opens", async () => {
  using place = temporaryDirectory();
  const dir = place.path;
  const file = path.join(dir, "store.sqlite");
  const store = openStore({ path: file, clock: new ManualClock() });
  const put = (n: number) =>
    store.append({ key: `/registry/x/${n}`, value: Buffer.alloc(2_000, n), expectedRevision: 0 });
  let isDone = false;
  let written = 0;
  const writer = (async () => {
    for (; !isDone; written += 1) await put(written);
  })();
  while (written < 50) await new Promise((resolve) => setTimeout(resolve, 1));
  const target = path.join(dir, "copy.sqlite");
  const [before] = [written, await copyDatabase(file, target)];
  const during = written;
  isDone = true;
  await writer;
  await store.close();
  expect(fileVersion(readFileSync(target))).toBe(storeFormat);

  const copy = openStore({ path: target, clock: new ManualClock() });
  const keys = copy.list({ prefix: "/registry/x/" }).rows.map(({ key }) => Number(key.slice("/registry/x/".length)));
  await copy.close();
  // Every row up to some moment, and none after it.
  expect(keys.toSorted((a, b) => a - b)).toEqual(Array.from({ length: keys.length }, (_, n) => n));
  expect(keys.length).toBeGreaterThanOrEqual(before);
  expect(keys.length).toBeLessThanOrEqual(during + 1);
});

test("copyDatabase: a store that nobody has open is copied too, and what is no store is refused", async () => {
  using place = temporaryDirectory();
  const dir = place.path;
  const file = path.join(dir, "store.sqlite");
  const store = openStore({ path: file, clock: new ManualClock() });
  await store.append({ key: "/registry/a", value: Buffer.from("a"), expectedRevision: 0 });
  await store.close();
  await copyDatabase(file, path.join(dir, "copy.sqlite"));
  const copy = openStore({ path: path.join(dir, "copy.sqlite"), clock: new ManualClock() });
  expect(Buffer.from(copy.get("/registry/a")?.value ?? []).toString()).toBe("a");
  await copy.close();
  await expect(copyDatabase(path.join(dir, "none"), path.join(dir, "b.sqlite"))).rejects.toThrow();
  // A device that has no room, whatever is written to it.
  await expect(copyDatabase(file, "/dev/full")).rejects.toMatchObject({
    name: "StoreError",
    code: "full",
    message: expect.stringContaining(`${file}, which is copied to /dev/full, cannot grow`) as string,
  });
  expect(fileVersion(Buffer.alloc(100))).toBeUndefined();
});
