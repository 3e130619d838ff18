import { mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { settleRecord, writeRecord } from "./record-file.ts";
import { RecordShelf } from "./record-shelf.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), "records-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

test("writeRecord: replaces in one step, with its mode, and leaves nothing beside it", async () => {
  const file = path.join(dir, "r.json");
  await writeRecord(file, "1");
  await writeRecord(file, "2", { isSettled: false, mode: 0o640 });
  await settleRecord(file);
  await settleRecord(path.join(dir, "none.json"));
  expect(await readFile(file, "utf8")).toBe("2");
  expect((await stat(file)).mode & 0o777).toBe(0o640);
  expect(await readdir(dir)).toEqual(["r.json"]);
});

test("writeRecord: what cannot be written leaves the old record and no rest", async () => {
  const file = path.join(dir, "r.json");
  await writeRecord(file, "1");
  await expect(writeRecord(path.join(file, "below.json"), "2")).rejects.toThrow("ENOTDIR");
  expect(await readdir(dir)).toEqual(["r.json"]);
});

test("writeRecord: a link in the record's place is replaced, not followed", async () => {
  const canary = path.join(dir, "canary");
  await writeFile(canary, "mine");
  await symlink(canary, path.join(dir, "r.json"));
  await writeRecord(path.join(dir, "r.json"), "2");
  expect(await readFile(canary, "utf8")).toBe("mine");
});

test("RecordShelf: a record that is empty, torn or something else is absent and kept", async () => {
  const bad: string[] = [];
  const shelf = new RecordShelf(dir, (file) => bad.push(file));
  const file = path.join(dir, "r.json");
  const parse = (text: string): number => {
    const { value } = JSON.parse(text) as { value?: number };
    if (value === undefined) throw new Error("no value");
    return value;
  };
  expect(await shelf.read(file, parse)).toBeUndefined();
  await writeFile(file, '{"value":3}');
  expect(await shelf.read(file, parse)).toBe(3);
  for (const text of ["", '{"val', "{}", "null"]) {
    await writeFile(file, text);
    expect(await shelf.read(file, parse)).toBeUndefined();
    expect(await readdir(dir)).toEqual(["bad"]);
  }
  expect(bad).toEqual([file, file, file, file]);
  const names = await shelf.names();
  expect(names.length).toBeGreaterThan(0);
  expect(names.every((name) => name.startsWith("r.json.bad-"))).toBe(true);
});
