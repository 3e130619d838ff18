import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { readArchive } from "./archive-reader.ts";
import { ArchiveWriter } from "./archive-writer.ts";
import { BackupError } from "./backup-error.ts";

async function* chunksOf(bytes: Uint8Array, length = 7000): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

/** An archive of two texts and a file of 64 KiB that is a hole but for five bytes at 4096. */
async function archived(): Promise<Buffer> {
  const written: Uint8Array[] = [];
  const archive = new ArchiveWriter(async (bytes) => void written.push(Buffer.from(bytes)), 1_700_000_000);
  await archive.addText("manifest.json", '{"format":1}\n');
  const map = Buffer.alloc(512);
  map.write("2\n4096\n5\n65536\n0\n");
  const content = Buffer.concat([map, Buffer.from("pearl")]);
  await archive.add({ name: "holes.img", sizeBytes: content.length, realBytes: 65_536, bytes: chunksOf(content) });
  await archive.addText("empty", "");
  await archive.finish();
  return Buffer.concat(written);
}

const read = (bytes: Uint8Array) => readArchive(chunksOf(bytes), async () => {});

test("archive: what was written is read, part by part", async () => {
  const contents = new Map<string, string>();
  const parts = await readArchive(chunksOf(await archived()), async ({ name }, bytes) => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of bytes) chunks.push(chunk);
    contents.set(name, Buffer.concat(chunks).toString("latin1"));
  });
  expect(parts.map(({ name, sizeBytes }) => [name, sizeBytes])).toEqual([
    ["manifest.json", 13],
    ["holes.img", 517],
    ["empty", 0],
  ]);
  expect(contents.get("manifest.json")).toBe('{"format":1}\n');
});

test("archive: any byte that is changed is noticed, in headers, contents, padding and the end", async () => {
  const whole = await archived();
  const unnoticed: number[] = [];
  for (let at = 0; at < whole.length; at += 1) {
    const changed = Buffer.from(whole);
    changed[at] = (changed[at] ?? 0) ^ (1 << (at % 8));
    await read(changed).then(
      () => unnoticed.push(at),
      (error: unknown) => expect(error).toBeInstanceOf(BackupError),
    );
  }
  expect(unnoticed).toEqual([]);
});

test("archive: one that was cut off anywhere, or goes on, is noticed", async () => {
  const whole = await archived();
  for (let length = 0; length < whole.length; length += 97)
    await expect(read(whole.subarray(0, length)), `${length} bytes`).rejects.toMatchObject({ name: "BackupError" });
  await expect(read(whole.subarray(0, -1))).rejects.toMatchObject({ code: "damaged" });
  await expect(read(Buffer.concat([whole, Buffer.alloc(1)]))).rejects.toMatchObject({ code: "damaged" });
});

test("archive: the part that was changed is named", async () => {
  const changed = await archived();
  changed[changed.indexOf("pearl")] = 0x50;
  await expect(read(changed)).rejects.toThrow("the backup is damaged: holes.img is not what was written");
});

test("archive: something else is no backup", async () => {
  await expect(read(Buffer.from("hello"))).rejects.toMatchObject({ code: "not-a-backup" });
  await expect(read(Buffer.alloc(4096, "x"))).rejects.toMatchObject({ code: "not-a-backup" });
});

test("archive: GNU tar unpacks it, holes included", async () => {
  const dir = mkdtempSync(path.join(tmpdir(), "backup-archive-"));
  try {
    writeFileSync(path.join(dir, "a.tar"), await archived());
    execFileSync("tar", ["-xf", "a.tar", "--no-same-owner"], { cwd: dir });
    const image = readFileSync(path.join(dir, "holes.img"));
    expect([image.length, image.toString("latin1", 4096, 4101), image.filter((byte) => byte !== 0).length]).toEqual([
      65_536,
      "pearl",
      5,
    ]);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
