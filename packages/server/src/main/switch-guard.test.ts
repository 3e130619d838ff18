import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { identifyProcess, isAlive, type ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { silentLogger } from "../telemetry/logger.ts";
import { EngineLock } from "./engine-lock.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { configVariable } from "./role.ts";
import { guardSwitch } from "./switch-guard.ts";
import {
  clearSwitchOrder,
  readSwitchFailure,
  readSwitchOrder,
  type SwitchOrder,
  writeSwitchFailure,
  writeSwitchOrder,
} from "./switch-order.ts";

const back = { program: "/old/node", args: ["main.js", "up"] };

let dir: string;
let layout: Layout;
let started: ChildProcess[];
beforeEach(() => {
  dir = mkdtempSync(path.join(os.tmpdir(), "as-guard-"));
  const dataDir = path.join(dir, "data");
  mkdirSync(dataDir);
  layout = { ...layoutOf(dataDir), runDir: dir, configFile: path.join(dir, "config.json") };
  symlinkSync("versions/new", path.join(dir, "current"));
  started = [];
});
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const child of started) await end(child);
  rmSync(dir, { recursive: true });
});

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

async function start(env: NodeJS.ProcessEnv = {}): Promise<{ child: ChildProcess; identity: ProcessIdentity }> {
  const child = spawn("sleep", ["60"], { stdio: "ignore", env: { ...process.env, ...env } });
  started.push(child);
  await once(child, "spawn");
  const identity = identifyProcess(child.pid ?? 0);
  if (identity === undefined) throw new Error("the process has ended");
  return { child, identity };
}

function order(more: Partial<SwitchOrder> = {}): void {
  const link = { path: path.join(dir, "current"), before: path.join(dir, "versions/old") };
  writeSwitchOrder(layout, { version: "new", program: "/new", link, back, ...more });
}

const guard = (supervisor: ProcessIdentity, limitMs = 20_000) =>
  guardSwitch({ layout, logger: silentLogger(), supervisor, limitMs });

const link = (): string => readlinkSync(path.join(dir, "current"));

test("switch guard: a supervisor that ends before it serves is followed by the version before, and its link", async () => {
  const { child, identity } = await start();
  order();
  const guarded = guard(identity);
  await end(child);
  expect(await guarded).toEqual(back);
  expect(link()).toBe("versions/old");
  expect(readSwitchFailure(layout)).toEqual({ version: "new", message: "it ended before it answered" });
  expect(JSON.parse(readFileSync(path.join(dir, "holder.json"), "utf8"))).toEqual(identifyProcess(process.pid));
});

test("switch guard: a switch that is over, and one with another guard, change nothing", async () => {
  const { child, identity } = await start();
  order();
  const guarded = guard(identity);
  await clearSwitchOrder(layout);
  expect(await guarded).toBeUndefined();
  await end(child);
  order({ guard: { pid: 1, startTicks: "1" } });
  expect(await guard(identity)).toBeUndefined();
  expect([link(), readSwitchFailure(layout)]).toEqual(["versions/new", undefined]);
});

test("switch guard: a version that never begins is ended at the limit", async () => {
  const { identity } = await start();
  order();
  expect(await guard(identity, 100)).toEqual(back);
  await expect.poll(() => isAlive(identity)).toBe(false);
  expect(readSwitchFailure(layout)?.message).toBe("it did not answer within 0.1 s");
});

test("switch guard: a version that turns back by itself has more time, and its own reason stays", async () => {
  const { child, identity } = await start();
  order();
  writeSwitchFailure(layout, { version: "new", message: "node ended before it was ready" });
  const guarded = guard(identity, 0);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(isAlive(identity)).toBe(true);
  await end(child);
  expect(await guarded).toEqual(back);
  expect(readSwitchFailure(layout)?.message).toBe("node ended before it was ready");
});

test("switch guard: who ends the engine for good meanwhile has the last word", async () => {
  const { child, identity } = await start();
  order();
  const lock = EngineLock.takeIn(layout.dataDir);
  await end(child);
  const guarded = guard(identity);
  await clearSwitchOrder(layout);
  lock?.[Symbol.dispose]();
  expect(await guarded).toBeUndefined();
  expect(link()).toBe("versions/new");
});

test("switch guard: roles that the other version left are ended before its link goes", async () => {
  const { child, identity } = await start();
  const role = await start({ [configVariable]: layout.configFile });
  const stranger = await start({ [configVariable]: `${layout.configFile}.other` });
  order();
  await end(child);
  expect(await guard(identity)).toEqual(back);
  expect([isAlive(role.identity), isAlive(stranger.identity)]).toEqual([false, true]);
});

test("switch guard: a service of systemd is started again by systemd, from the link of the version before", async () => {
  const { child, identity } = await start();
  vi.stubEnv("SYSTEMD_EXEC_PID", String(identity.pid));
  order();
  await end(child);
  expect(await guard(identity)).toBeUndefined();
  expect([link(), readSwitchOrder(layout), existsSync(path.join(dir, "switch-failed.json"))]).toEqual([
    "versions/old",
    undefined,
    true,
  ]);
});
