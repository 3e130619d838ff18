import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ArchiveWriter } from "../backup/archive-writer.ts";
import { databasePart, manifestName, manifestText } from "../backup/manifest.ts";
import { storeFormat } from "../store/schema.ts";
import { BackupFile, type CheckedBackup } from "./read-backup.ts";

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "read-backup-"));
});
afterAll(() => rm(dir, { recursive: true }));

const facts = { engineVersion: "1", nodeName: "one", createdAt: "now", includes: [], parts: [] };

/** The first bytes of a store's file. */
function databaseOf(version: number): string {
  const head = Buffer.alloc(100);
  head.writeUInt32BE(version, 60);
  head.write("ASBX", 68);
  return head.toString("latin1");
}

async function checked(parts: Readonly<Record<string, string>>): Promise<CheckedBackup> {
  const written: Uint8Array[] = [];
  const archive = new ArchiveWriter(async (bytes) => void written.push(Buffer.from(bytes)), 0);
  for (const [name, text] of Object.entries(parts)) await archive.addText(name, text);
  await archive.finish();
  const file = path.join(dir, "b.tar");
  writeFileSync(file, Buffer.concat(written));
  await using backup = await BackupFile.open(file);
  return await backup.read(async () => {});
}

const manifest = { [manifestName]: manifestText(facts) };

test("BackupFile: a backup of this version is taken", async () => {
  const found = await checked({ ...manifest, [databasePart]: databaseOf(storeFormat) });
  expect(found).toMatchObject({ manifest: facts, isEncrypted: false });
  expect(found.parts.map(({ name }) => name)).toEqual([manifestName, databasePart]);
});

test("BackupFile: a database of a later or an earlier format is refused, and what is no database", async () => {
  for (const format of [storeFormat - 1, storeFormat + 1])
    await expect(checked({ ...manifest, [databasePart]: databaseOf(format) })).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining(`has format ${format}, and this version`) as string,
    });
  await expect(checked({ ...manifest, [databasePart]: "x".repeat(200) })).rejects.toMatchObject({ code: "damaged" });
  await expect(checked({ ...manifest, [databasePart]: "short" })).rejects.toMatchObject({ code: "damaged" });
});

test("BackupFile: a part without a place, no database and no manifest are refused", async () => {
  const database = { [databasePart]: databaseOf(storeFormat) };
  const stray = { "engine/control/../../../etc/passwd": "root" };
  await expect(checked({ ...manifest, ...stray, ...database })).rejects.toMatchObject({ code: "unsupported" });
  await expect(checked(manifest)).rejects.toMatchObject({ code: "damaged" });
  await expect(checked(database)).rejects.toMatchObject({ code: "not-a-backup" });
});
