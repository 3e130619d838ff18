import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { temporaryDirectory } from "../store/testing/temporary-directory.ts";
import { openTarget } from "./backup-target.ts";

test("openTarget: a backup gets its name when it is committed, and nothing else is left", async () => {
  using place = temporaryDirectory();
  const target = await openTarget(place.path, "b.tar", process.stdout);
  await target.write(Buffer.from("backup"));
  await target.settle();
  expect(readdirSync(place.path)).toEqual([expect.stringMatching(/^\.b\.tar\..*\.partial$/)]);
  await target.commit();
  expect(readdirSync(place.path)).toEqual(["b.tar"]);
  expect(readFileSync(path.join(place.path, "b.tar"), "utf8")).toBe("backup");
});

test("openTarget: a file that appeared while the backup was written is not replaced", async () => {
  using place = temporaryDirectory();
  const file = path.join(place.path, "b.tar");
  const target = await openTarget(file, "unused", process.stdout);
  await target.write(Buffer.from("backup"));
  await target.settle();
  writeFileSync(file, "mine");
  await expect(target.commit()).rejects.toMatchObject({ code: "exists" });
  await target.discard();
  expect(readdirSync(place.path)).toEqual(["b.tar"]);
  expect(readFileSync(file, "utf8")).toBe("mine");
});
