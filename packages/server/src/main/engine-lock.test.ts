import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { identifyProcess } from "@agent-sandbox/kube/engine-record";
import { afterEach, beforeEach, expect, test } from "vitest";
import { EngineLock, otherHolder, settledRecord } from "./engine-lock.ts";
import { type Layout, layoutOf } from "./layout.ts";

let dir: string;
let layout: Layout;
let engine: ChildProcess;
beforeEach(async () => {
  dir = mkdtempSync(path.join(os.tmpdir(), "as-lock-"));
  layout = { ...layoutOf(path.join(dir, "data")), runDir: dir, recordFile: path.join(dir, "engine.json") };
  engine = spawn("sleep", ["60"], { stdio: "ignore" });
  await once(engine, "spawn");
});
afterEach(async () => {
  await end();
  rmSync(dir, { recursive: true });
});

async function end(): Promise<void> {
  if (engine.exitCode !== null || engine.signalCode !== null) return;
  const ended = once(engine, "exit");
  engine.kill("SIGKILL");
  await ended;
}

/** As an engine is while it becomes another version: it has announced itself and has neither lock nor record. */
function announce(pid = engine.pid ?? 0): void {
  writeFileSync(path.join(dir, "holder.json"), JSON.stringify(identifyProcess(pid)));
}

const record = (): object => ({ version: "0.1.2", supervisor: identifyProcess(engine.pid ?? 0) });

test("engine lock: an engine that becomes another version holds its directory, though the lock is free", async () => {
  announce();
  await expect(EngineLock.take(layout)).rejects.toMatchObject({
    code: "conflict",
    message: `another command starts or stops an engine on ${layout.dataDir} (pid ${engine.pid}); try again when it is done`,
  });
});

test("engine lock: the process that announced itself is not in its own way, nor is one that has ended", async () => {
  announce(process.pid);
  expect(otherHolder(layout)).toBeUndefined();
  announce();
  expect(otherHolder(layout)).toEqual(identifyProcess(engine.pid ?? 0));
  await end();
  expect(otherHolder(layout)).toBeUndefined();
});

test("engine lock: the record of an engine that has none yet is waited for", async () => {
  announce();
  const settled = settledRecord(layout, 10_000);
  writeFileSync(layout.recordFile, JSON.stringify(record()));
  expect(await settled).toEqual(record());
});

test("engine lock: a wait for the record is over when the engine ends, and refused at its limit", async () => {
  announce();
  await expect(settledRecord(layout, 50)).rejects.toMatchObject({ code: "conflict" });
  const settled = settledRecord(layout, 10_000);
  await end();
  expect(await settled).toBeUndefined();
});
