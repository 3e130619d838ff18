import { spawn } from "node:child_process";
import { rm } from "node:fs/promises";
import path from "node:path";
import { HostClient } from "../node/host/host-client.ts";
import { EngineError } from "./engine-error.ts";
import { EngineLock, lockHolder } from "./engine-lock.ts";
import { isAlive, type ProcessIdentity, readEngineRecord } from "./engine-record.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { isOfOlderVersion, olderVersion, removeOlderVersion } from "./older-version.ts";
import { findPrograms } from "./programs.ts";
import { removeTree } from "./remove-tree.ts";
import { socketAnswers } from "./supervisor.ts";

/** Longer than every role's own grace period together. */
const stopTimeoutMs = 40_000;

/** The helper listens within milliseconds of its start. */
const helperTimeoutMs = 5_000;

/** What `down` did. */
export interface DownReport {
  readonly wasRunning: boolean;
  /** What was removed from the host, for example `container`, `slot`, `mount`. */
  readonly removed: number;
}

/**
 * Stops the engine and its sandboxes; what sandboxes wrote stays, and they start again with the next `up`. With `purge`
 * nothing of the instance is left on the machine, its data included.
 */
export async function down(dataDir: string, { purge }: { readonly purge: boolean }): Promise<DownReport> {
  if (process.getuid?.() !== 0) throw new EngineError("stopping the engine needs root; run it again as root");
  const layout = layoutOf(dataDir);
  if (isOfOlderVersion(layout)) {
    if (!purge) throw olderVersion(layout);
    await removeOlderVersion(layout);
  }
  // An engine that is starting has no record yet; it is known by the lock it holds.
  const running = (await readEngineRecord(layout))?.supervisor ?? (await startingEngine(layout));
  if (running !== undefined) await stopProcess(running);
  using lock = EngineLock.take(layout);
  if (lock === undefined) throw new EngineError(`another command starts or stops an engine on ${layout.dataDir}`);
  const removed = await sweep(layout, purge);
  if (purge) {
    await removeTree(layout.dataDir);
    await removeTree(layout.runDir);
  }
  return { wasRunning: running !== undefined, removed };
}

async function startingEngine(layout: Layout): Promise<ProcessIdentity | undefined> {
  const holder = lockHolder(layout);
  if (holder === undefined) return undefined;
  using lock = EngineLock.take(layout);
  return lock === undefined ? holder : undefined;
}

async function stopProcess(identity: ProcessIdentity): Promise<void> {
  process.kill(identity.pid, "SIGTERM");
  const deadlineMs = performance.now() + stopTimeoutMs;
  while (isAlive(identity)) {
    if (performance.now() > deadlineMs)
      throw new EngineError(`the engine (pid ${identity.pid}) did not stop within ${stopTimeoutMs / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Starts the privileged helper once more, alone, to remove what the instance made on the host. */
async function sweep(layout: Layout, purge: boolean): Promise<number> {
  const { sandboxHost, runsc, runc } = findPrograms();
  const socket = `${layout.hostSocket}.down`;
  const args = [
    `--data-dir=${layout.dataDir}`,
    `--run-dir=${path.dirname(layout.runDir)}`,
    `--socket=${socket}`,
    `--runsc=${runsc}`,
    `--runc=${runc ?? ""}`,
  ];
  const helper = spawn(sandboxHost, args, { stdio: "ignore" });
  try {
    await socketAnswers(socket, AbortSignal.timeout(helperTimeoutMs));
    const host = new HostClient({ socketPath: socket });
    const keep = purge
      ? { writableLayers: [], volumes: [] }
      : { writableLayers: (await host.listWritableLayers()).map(({ key }) => key), volumes: [] };
    const report = await host.sweep({
      containers: [],
      rootfs: [],
      emptyDirs: [],
      files: [],
      slots: [],
      cgroups: [],
      network: false,
      ...keep,
    });
    await host.close();
    if (report.failed.length > 0) {
      const failures = report.failed.map(({ kind, name, message }) => `${kind} ${name}: ${message}`).join("; ");
      throw new EngineError(`the engine is stopped, but not everything could be removed: ${failures}`);
    }
    return report.removed.length;
  } finally {
    helper.kill("SIGTERM");
    await rm(socket, { force: true });
  }
}
