import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openStore } from "../store/sqlite-store.ts";
import { createLogger } from "../telemetry/logger.ts";
import { keepStoreOfOtherVersion, parseCopies } from "./store-versions.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(path.join(os.tmpdir(), "as-store-"));
});
afterEach(() => {
  rmSync(dir, { recursive: true });
});

/** One start of control by a version, which writes one key. */
async function startBy(version: string, nowMs: number): Promise<void> {
  const dbFile = path.join(dir, "db/store.sqlite");
  await keepStoreOfOtherVersion({
    dbFile,
    version,
    nowMs,
    logger: createLogger({ component: "test", level: "silent" }),
  });
  const store = openStore({ path: dbFile, clock: systemClock });
  await store.append({
    key: `/written/by/${version}/${nowMs}`,
    value: new TextEncoder().encode(version),
    expectedRevision: 0,
  });
  await store.close();
}

async function keysIn(name: string): Promise<string[]> {
  const store = openStore({ path: path.join(dir, "db", name), clock: systemClock });
  const { rows } = store.list({ prefix: "/written/" });
  await store.close();
  return rows.map(({ key }) => key);
}

const copies = (): string[] => parseCopies(readdirSync(path.join(dir, "db"))).map(({ name }) => name);

test("store versions: before another version opens the store, what the one before left is copied; three copies stay", async () => {
  await startBy("0.1.0", 1);
  await startBy("0.1.0", 2);
  expect(copies()).toEqual([]);
  await startBy("0.1.1", 3);
  expect(copies()).toEqual(["store-of-0.1.0-at-3.sqlite"]);
  expect(await keysIn("store-of-0.1.0-at-3.sqlite")).toEqual(["/written/by/0.1.0/1", "/written/by/0.1.0/2"]);
  expect(await keysIn("store.sqlite")).toContain("/written/by/0.1.1/3");
  for (const [at, version] of ["0.1.0", "0.1.1", "0.1.2"].entries()) await startBy(version, 4 + at);
  expect(copies()).toEqual(["store-of-0.1.1-at-6.sqlite", "store-of-0.1.0-at-5.sqlite", "store-of-0.1.1-at-4.sqlite"]);
  expect(readFileSync(path.join(dir, "db/opened-by"), "utf8")).toBe("0.1.2");
});
