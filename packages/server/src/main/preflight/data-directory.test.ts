import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { statfs } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Layout, layoutOf } from "../layout.ts";
import { lookAtDisk } from "./data-directory.ts";
import type { Look } from "./look.ts";

let dir = "";
beforeEach(() => {
  dir = mkdtempSync(path.join(os.tmpdir(), "as-disk-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

/** With more kept free than the file system has, the disk is as good as full. */
async function lookAtFullDisk(layout: Layout): Promise<Look> {
  const { bavail, bsize } = await statfs(dir);
  const kept = String(bavail * bsize);
  return lookAtDisk({ layout, listeners: [], limits: { systemReservedDisk: kept }, nowMs: Date.now() });
}

test("preflight: a full disk keeps a first engine from starting", async () => {
  const look = await lookAtFullDisk(layoutOf(path.join(dir, "data")));
  expect(look).toMatchObject({
    verdict: "broken",
    code: "failed",
    detail: expect.stringMatching(/^only \d+ MiB free/),
  });
  expect(look.advice).toContain("choose another --data-dir");
});

test("preflight: on a full disk an engine or node that ran before starts again, with a warning", async () => {
  const engine = layoutOf(path.join(dir, "engine"));
  mkdirSync(path.dirname(engine.dbFile), { recursive: true });
  writeFileSync(engine.dbFile, "");
  const node = layoutOf(path.join(dir, "node"));
  mkdirSync(node.hostDir, { recursive: true });
  for (const layout of [engine, node])
    expect(await lookAtFullDisk(layout)).toMatchObject({
      verdict: "warning",
      detail: expect.stringMatching(/^only \d+ MiB free/),
      advice: "delete sandboxes or images that are not needed",
    });
});
