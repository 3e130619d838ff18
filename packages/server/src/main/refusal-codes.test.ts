import { chmodSync, mkdirSync, symlinkSync } from "node:fs";
import path from "node:path";
import { expect, test, vi } from "vitest";
import { temporaryDirectory } from "../store/testing/temporary-directory.ts";
import { backup } from "./backup.ts";
import { restore } from "./restore.ts";
import { assertSecretTarget } from "./secret-out.ts";

test("backup, restore: a user who is not root is denied it", async () => {
  using getuid = vi.spyOn(process, "getuid").mockReturnValue(1000);
  const { signal } = new AbortController();
  const place = { dataDir: "/nonexistent", nowMs: 0 };
  await expect(
    backup({ ...place, to: "-", include: [], pauseMaxMs: 1, stdout: process.stdout, signal }),
  ).rejects.toMatchObject({ code: "denied" });
  await expect(restore({ ...place, from: "/nonexistent", force: false })).rejects.toMatchObject({ code: "denied" });
  expect(getuid).toHaveBeenCalledTimes(2);
});

test("assertSecretTarget: each refusal has the code of its kind", () => {
  using place = temporaryDirectory();
  const at = (name: string): string => path.join(place.path, name);
  symlinkSync("elsewhere", at("link"));
  mkdirSync(at("open"));
  chmodSync(at("open"), 0o777);
  const refusal = (code: string): Error => expect.objectContaining({ name: "EngineError", code }) as Error;
  expect(() => assertSecretTarget(at("link"))).toThrow(refusal("conflict"));
  expect(() => assertSecretTarget(at("open/config"))).toThrow(refusal("denied"));
  expect(() => assertSecretTarget(at("none/config"))).toThrow(refusal("failed"));
});
