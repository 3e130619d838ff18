import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { rootDir } from "../checkout.ts";
import { pinFiles, pinOf } from "./provenance.ts";

test("provenance: every list that pins packages, but for those of tests and examples, is named with its digest", () => {
  const patterns = [
    "package-lock.json",
    "*/package-lock.json",
    "*/go.sum",
    "*/requirements.txt",
    ":!test",
    ":!examples",
  ];
  const { stdout } = spawnSync("git", ["-C", rootDir, "ls-files", ...patterns], { encoding: "utf8" });
  expect([...pinFiles].sort()).toEqual(stdout.trim().split("\n"));
  for (const name of pinFiles)
    expect(pinOf(name)).toEqual({ uri: name, digest: { sha256: expect.stringMatching(/^[0-9a-f]{64}$/) } });
});

test("provenance: a list that is missing ends the release", () => {
  expect(() => pinOf("native/nothing.sum")).toThrow("native/nothing.sum is missing, which pins a part of the release");
});
