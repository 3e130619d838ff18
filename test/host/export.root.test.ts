import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { writeSparse } from "../../packages/server/src/backup/sparse-file.ts";
import { exportImage, type ImageName } from "../../packages/server/src/main/export-image.ts";
import { RealHost } from "./real-host.ts";

const volume: ImageName = { kind: "volume", id: "kept" };
const mebibyte = 2 ** 20;

let real: RealHost;
let scratch = "";

beforeAll(async () => {
  real = await RealHost.open();
  scratch = await mkdtemp("/tmp/as-export-");
  await real.host.ensureVolume({ id: volume.id, sizeBytes: 256 * mebibyte });
});

afterAll(async () => {
  await real[Symbol.asyncDispose]();
  await rm(scratch, { recursive: true });
});

const mountPoint = (): string => path.join(real.hostDir, "mnt/volumes", volume.id);
const snapshots = (): string[] =>
  readdirSync(path.join(real.hostDir, "volumes")).filter((name) => name.includes("snapshot"));

async function exported(pauseMaxMs = 10_000): Promise<{ readonly file: string; readonly pausedMs: number }> {
  const image = await exportImage(real.socketPath, volume, { pauseMaxMs, signal: AbortSignal.timeout(30_000) });
  if (image === undefined) throw new Error("there is no such volume");
  const file = path.join(scratch, "copy.img");
  await rm(file, { force: true });
  const handle = await open(file, "wx");
  try {
    await writeSparse(handle, image.bytes, image.realBytes);
  } finally {
    await handle.close();
  }
  return { file, pausedMs: image.pausedMs };
}

/** What a file of an image holds, without mounting it. */
async function contentOf(image: string, name: string): Promise<string> {
  const out = path.join(scratch, "content");
  const child = spawn("debugfs", ["-R", `dump ${name} ${out}`, image], { stdio: "ignore" });
  await once(child, "exit");
  return readFile(out, "utf8");
}

test("exportImage: a volume that is written to is copied as it is at one moment, and is clean", async () => {
  // Each number goes into one file and then into the other: at no moment is the second ahead.
  const script = `cd ${mountPoint()} && i=0; while :; do i=$((i+1)); echo $i >> a; echo $i >> b; done`;
  const [program, args] = real.inside("sh", "-c", script);
  const writer = spawn(program, args, { stdio: "ignore" });
  await expect.poll(() => real.runInside("sh", "-c", `wc -l < ${mountPoint()}/b`).stdout.trim()).not.toBe("");
  await new Promise((resolve) => setTimeout(resolve, 300));
  const { file } = await exported();
  const linesAfter = Number(real.runInside("sh", "-c", `wc -l < ${mountPoint()}/b`).stdout);
  writer.kill("SIGKILL");
  await once(writer, "exit");
  const check = spawn("e2fsck", ["-f", "-n", file], { stdio: "ignore" });
  expect(await once(check, "exit")).toEqual([0, null]);
  const [a, b] = [await contentOf(file, "a"), await contentOf(file, "b")].map((text) => text.split("\n").slice(0, -1));
  expect(a).toEqual(Array.from({ length: a?.length ?? 0 }, (_, n) => String(n + 1)));
  expect(b?.length).toBeGreaterThan(0);
  expect((a?.length ?? 0) - (b?.length ?? 0)).toBeOneOf([0, 1]);
  // The writer went on meanwhile.
  expect(linesAfter).toBeGreaterThan(b?.length ?? 0);
  expect(snapshots()).toEqual([]);
});

test("exportImage: writers never wait longer than allowed; the volume is as before", async () => {
  real.runInside("dd", "if=/dev/urandom", `of=${mountPoint()}/big`, "bs=1M", "count=128", "conv=fsync");
  await expect(exported(1)).rejects.toThrow(/kept was not copied within 1ms, for which its writers may wait: suspend/);
  expect(real.runInside("touch", `${mountPoint()}/after`).status).toBe(0);
  expect(snapshots()).toEqual([]);
  const { pausedMs } = await exported();
  console.info(`writers waited ${pausedMs} ms for 128 MiB`);
});

test("exportImage: a helper that was killed in the middle lets the writers go on when it is back", async () => {
  await real.kill();
  // What a killed helper leaves: a frozen file system and half a copy.
  expect(real.runInside("fsfreeze", "--freeze", mountPoint()).status).toBe(0);
  const left = path.join(real.hostDir, "volumes/kept.img.snapshot");
  real.runInside("touch", left);
  await real.start();
  expect(real.runInside("timeout", "5", "touch", `${mountPoint()}/thawed`).status).toBe(0);
  expect(existsSync(left)).toBe(false);
});

test("exportImage: what is not there is told apart from what is no name", async () => {
  const options = { pauseMaxMs: 1000, signal: AbortSignal.timeout(5_000) };
  expect(await exportImage(real.socketPath, { kind: "writable", id: "none" }, options)).toBeUndefined();
  await expect(exportImage(real.socketPath, { kind: "volume", id: "../x" }, options)).rejects.toThrow("is not an id");
});
