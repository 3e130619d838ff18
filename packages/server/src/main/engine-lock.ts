import { closeSync, readFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { type EngineRecord, identifyProcess, isAlive, type ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import { ensureBaseDirectories } from "./engine-directories.ts";
import { EngineError } from "./engine-error.ts";
import { readEngineRecord } from "./engine-record.ts";
import type { Layout } from "./layout.ts";
import { openForAppend, writeRootFile } from "./root-files.ts";

/**
 * Holds a data directory for one process, from before an engine starts until it has ended. SQLite locks its file with a
 * lock of the kernel, which goes with the process, however that ends; Node has no other way to one.
 */
export class EngineLock implements Disposable {
  readonly #database: DatabaseSync;

  private constructor(database: DatabaseSync) {
    this.#database = database;
  }

  /**
   * Takes the lock of a data directory. Throws `takenError` where another process has it, or is an engine that becomes another version: that one
   * has neither lock nor record for a second or two, and the same pid before and after.
   */
  static async take(layout: Layout): Promise<EngineLock> {
    await untilFree(layout);
    ensureBaseDirectories(layout);
    const lock = EngineLock.takeIn(layout.dataDir);
    if (lock === undefined) throw takenError(layout);
    return lock;
  }

  /** The same for a directory that is there, by a file with another name where the lock is for something else. Preconditions: it is root's. */
  static takeIn(dir: string, name = "engine.lock"): EngineLock | undefined {
    const file = path.join(dir, name);
    // A user who can read the file can lock it, too.
    closeSync(openForAppend(file));
    const database = new DatabaseSync(file, { timeout: lastBreathMs });
    try {
      database.exec("BEGIN EXCLUSIVE");
    } catch (error) {
      database.close();
      if ((error as { errcode?: number }).errcode === busyCode) return undefined;
      throw error;
    }
    return new EngineLock(database);
  }

  /** Tells who holds it, for those who want to end an engine that has no record yet. */
  announce(layout: Layout): void {
    writeRootFile(holderFile(layout), JSON.stringify(identifyProcess(process.pid)));
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }
}

/** A process counts as ended when its first thread has; what it had open is closed when the last one has. */
const lastBreathMs = 2_000;

/** What SQLite answers for a file that another process has locked. */
const busyCode = 5;

const holderFile = (layout: Layout): string => path.join(layout.runDir, "holder.json");

/** For a directory that an engine holds which has no record yet or no longer. */
function takenError(layout: Layout): EngineError {
  const pid = lockHolder(layout)?.pid ?? "unknown";
  return new EngineError(
    `another command starts or stops an engine on ${layout.dataDir} (pid ${pid}); try again when it is done`,
    { code: "conflict" },
  );
}

// Two small files in memory.
const lookEveryMs = 15;

/** Resolves when no other process holds the directory; throws `takenError` when one does that is not just ending. */
async function untilFree(layout: Layout): Promise<void> {
  if (!(await within(lastBreathMs, () => otherHolder(layout) === undefined))) throw takenError(layout);
}

/**
 * The record of the engine on a directory. Where a process holds it without a record, it is starting or becoming another version: waits for its
 * record or its end, and throws `takenError` after the limit.
 */
export async function settledRecord(layout: Layout, limitMs: number): Promise<EngineRecord | undefined> {
  let record: EngineRecord | undefined;
  const isSettled = (): boolean => {
    record = readEngineRecord(layout);
    return record !== undefined || otherHolder(layout) === undefined;
  };
  if (!(await within(limitMs, isSettled))) throw takenError(layout);
  return record;
}

async function within(limitMs: number, isSo: () => boolean): Promise<boolean> {
  const endMs = performance.now() + limitMs;
  while (!isSo()) {
    if (performance.now() >= endMs) return false;
    await sleep(lookEveryMs);
  }
  return true;
}

/** The engine that announced itself last, if its process lives; it may be starting. */
function lockHolder(layout: Layout): ProcessIdentity | undefined {
  try {
    const holder = JSON.parse(readFileSync(holderFile(layout), "utf8")) as ProcessIdentity;
    return isAlive(holder) ? holder : undefined;
  } catch {
    // No engine has run here yet, or one is just writing the file.
    return undefined;
  }
}

/** The same, unless it is this process. */
export function otherHolder(layout: Layout): ProcessIdentity | undefined {
  const holder = lockHolder(layout);
  return holder?.pid === process.pid ? undefined : holder;
}
