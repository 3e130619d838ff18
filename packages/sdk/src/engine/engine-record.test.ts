import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { recordFileIn, runDirOf } from "@agent-sandbox/kube/engine-record";
import { expect, test } from "vitest";
import { readEngineRecord } from "./engine-record.ts";

async function writeRecord(runDir: string, dataDir: string, supervisor: object): Promise<void> {
  const file = recordFileIn(runDirOf(dataDir, runDir));
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, JSON.stringify({ apiUrl: "https://127.0.0.1:1", supervisor }));
}

async function ownTicks(): Promise<string> {
  const stat = await readFile("/proc/self/stat", "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

test("readEngineRecord: a live supervisor's record is found by the data directory", async () => {
  const runDir = await mkdtemp(join(tmpdir(), "record-"));
  await writeRecord(runDir, "/data/a", { pid: process.pid, startTicks: await ownTicks() });
  expect(await readEngineRecord("/data/a", runDir)).toMatchObject({ apiUrl: "https://127.0.0.1:1" });
  expect(await readEngineRecord("/data/b", runDir)).toBeUndefined();
});

test("readEngineRecord: a pid that belongs to somebody else by now is no engine", async () => {
  const runDir = await mkdtemp(join(tmpdir(), "record-"));
  await writeRecord(runDir, "/data/a", { pid: process.pid, startTicks: "1" });
  expect(await readEngineRecord("/data/a", runDir)).toBeUndefined();
});

test("runDirOf: the directory follows from the absolute path", () => {
  expect(runDirOf("/var/lib/agent-sandbox")).toBe(runDirOf("/var/lib/x/../agent-sandbox"));
  expect(runDirOf("/var/lib/agent-sandbox")).toMatch(/^\/run\/agent-sandbox\/[0-9a-f]{6}$/);
});
