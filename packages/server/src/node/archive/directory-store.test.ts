import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { DirectoryStore } from "./directory-store.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), "archive-store-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

const { signal } = new AbortController();
const store = (): DirectoryStore => new DirectoryStore(path.join(dir, "store"));

/** A file to be stored. */
async function fileOf(text: string): Promise<{ path: string; sizeBytes: number; sha256: string }> {
  const file = path.join(dir, "file");
  await writeFile(file, text);
  return { path: file, sizeBytes: text.length, sha256: createHash("sha256").update(text).digest("hex") };
}

test("DirectoryStore: what was put comes back, and nothing else is there", async () => {
  const file = await fileOf("content");
  await store().putFile("parts/a/000000", file, signal);
  await store().putText("index/a.json", "entry");
  expect(await store().list("")).toEqual(["index/a.json", "parts/a/000000"]);
  expect(await store().list("parts/a/")).toEqual(["parts/a/000000"]);
  expect(await store().list("parts/b/")).toEqual([]);
  expect(await store().getText("index/a.json", signal)).toBe("entry");
  expect(await store().getText("index/b.json", signal)).toBeUndefined();
  const back = { ...file, path: path.join(dir, "back") };
  await store().getFile("parts/a/000000", back, signal);
  expect(await readFile(back.path, "utf8")).toBe("content");
  for (let times = 0; times < 2; times += 1) await store().remove("parts/a/000000");
  await store().remove("parts/never/000000");
  expect(await store().list("")).toEqual(["index/a.json"]);
});

test("DirectoryStore: another content is not taken for the one that was meant", async () => {
  const file = await fileOf("content");
  await store().putFile("parts/a/000000", file, signal);
  expect(await store().has("parts/a/000000", file, signal)).toBe(true);
  expect(await store().has("parts/a/000001", file, signal)).toBe(false);
  const stored = path.join(dir, "store/parts/a/000000");
  const back = { ...file, path: path.join(dir, "back") };
  for (const damaged of ["cOntent", "conten", ""]) {
    await writeFile(stored, damaged);
    expect(await store().has("parts/a/000000", file, signal)).toBe(false);
    await expect(store().getFile("parts/a/000000", back, signal)).rejects.toMatchObject({ code: "damaged" });
  }
  await rm(stored);
  await expect(store().getFile("parts/a/000000", back, signal)).rejects.toMatchObject({ code: "not-found" });
});

test("DirectoryStore: what a killed process left of an object is not one, and goes with the next attempt", async () => {
  const parts = path.join(dir, "store/parts/a");
  await mkdir(parts, { recursive: true });
  await writeFile(path.join(parts, "000000.0b8b.new"), "cont");
  expect(await store().list("parts/")).toEqual([]);
  const file = await fileOf("content");
  await store().putFile("parts/a/000000", file, signal);
  expect(await readdir(parts)).toEqual(["000000"]);
});

test("DirectoryStore: a file that changed since it was packed is refused", async () => {
  const file = await fileOf("content");
  await writeFile(file.path, "another");
  await expect(store().putFile("parts/a/000000", file, signal)).rejects.toMatchObject({ code: "damaged" });
});

test("DirectoryStore: names lead nowhere else", async () => {
  for (const name of ["../x", "/etc/passwd", "parts/../../x", "", "A"])
    await expect(store().putText(name, "x")).rejects.toMatchObject({ code: "invalid" });
});

test("DirectoryStore: a place that is no directory is an error, not an empty archive", async () => {
  await writeFile(path.join(dir, "store"), "");
  await expect(store().list("index/")).rejects.toMatchObject({ code: "unavailable" });
  await expect(store().putText("index/a.json", "x")).rejects.toMatchObject({ code: "unavailable" });
});
