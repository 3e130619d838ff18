import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { temporaryDirectory } from "../store/testing/temporary-directory.ts";
import {
  closeStaging,
  cutOffRestore,
  dataIn,
  movedFrom,
  moveOldAside,
  openStaging,
  putBack,
  replaceData,
} from "./data-replacement.ts";
import { layoutOf } from "./layout.ts";
import { assertUsable } from "./older-version.ts";

type Content = Readonly<Record<string, string>>;

const oldData: Content = { engine: "old", "network.json": "old", logs: "old" };
const newData: Content = { engine: "new", "network.json": "new", "node.json": "new" };

/** A data directory with the old data, the new in its staging directory, and a place for the old one. */
function prepared(parent: string, old = oldData): { readonly dir: string; readonly aside: string } {
  const dir = path.join(parent, "data");
  mkdirSync(dir);
  put(dir, { ...old, "engine.lock": "" });
  const tree = openStaging(dir);
  mkdirSync(tree);
  put(tree, newData);
  return { dir, aside: path.join(parent, "data.before") };
}

function put(dir: string, content: Content): void {
  for (const [name, text] of Object.entries(content)) writeFileSync(path.join(dir, name), text);
}

function contentOf(dir: string): Content {
  return Object.fromEntries(dataIn(dir).map((name) => [name, readFileSync(path.join(dir, name), "utf8")]));
}

test("replaceData: the new data takes the place of the old, which lies beside it", async () => {
  using place = temporaryDirectory();
  const { dir, aside } = prepared(place.path);
  replaceData(dir, aside);
  expect(movedFrom(dir)).toBe(aside);
  await closeStaging(dir);
  expect(contentOf(dir)).toEqual(newData);
  expect(contentOf(aside)).toEqual(oldData);
  expect(readdirSync(dir)).toContain("engine.lock");
  expect(cutOffRestore(dir)).toBeUndefined();
});

test("putBack: what failed half-way leaves the old data in its place, and nothing else", async () => {
  using place = temporaryDirectory();
  const { dir, aside } = prepared(place.path);
  // The last of the new entries cannot take its place: a directory does not replace a file.
  mkdirSync(path.join(dir, ".restoring/tree/engine.lock"));
  expect(() => replaceData(dir, aside)).toThrow("ENOTDIR");
  await putBack(dir);
  expect(contentOf(dir)).toEqual(oldData);
  expect(readdirSync(place.path)).toEqual(["data"]);
  expect(cutOffRestore(dir)).toBeUndefined();
});

test("putBack: of a directory that had no data, nothing of the new is left", async () => {
  using place = temporaryDirectory();
  const { dir, aside } = prepared(place.path, {});
  replaceData(dir, aside);
  expect(existsSync(aside)).toBe(false);
  await putBack(dir);
  expect(readdirSync(dir)).toEqual(["engine.lock"]);
});

test("putBack: old data that somebody took elsewhere is not missed, and what is in the directory stays", async () => {
  using place = temporaryDirectory();
  const { dir } = prepared(place.path);
  writeFileSync(
    path.join(dir, ".restoring/replaced.json"),
    JSON.stringify({ old: ["engine"], fresh: ["engine"], movedTo: path.join(place.path, "gone") }),
  );
  await putBack(dir);
  expect(contentOf(dir)).toEqual(oldData);
});

test("assertUsable: a restore that was killed while the old data was moved is refused, and names where that is", async () => {
  using place = temporaryDirectory();
  const { dir, aside } = prepared(place.path);
  const refusal = (): void => assertUsable(layoutOf(dir));
  expect(refusal).toThrow(`and the data there is whole; if none runs, keep it with: rm -r ${dir}/.restoring,`);
  moveOldAside(dir, aside);
  expect(dataIn(dir)).toEqual([]);
  expect(refusal).toThrow(
    `a restore into ${dir} runs or was cut off, and the data that was there before is in ${aside};`,
  );
  expect(refusal).toThrow(expect.objectContaining({ code: "conflict" }) as Error);
  await putBack(dir);
  expect(contentOf(dir)).toEqual(oldData);
});
