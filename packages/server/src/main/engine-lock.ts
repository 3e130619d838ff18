import { closeSync, readFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { ensureBaseDirectories } from "./engine-directories.ts";
import { identifyProcess, isAlive, type ProcessIdentity } from "./engine-record.ts";
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

  /** Takes the lock, or answers undefined where another process has it. */
  static take(layout: Layout): EngineLock | undefined {
    ensureBaseDirectories(layout);
    return EngineLock.takeIn(layout.dataDir);
  }

  /** The same for a data directory that is there. Preconditions: it is root's. */
  static takeIn(dataDir: string): EngineLock | undefined {
    const file = path.join(dataDir, "engine.lock");
    // Whoever may read it may lock it, too.
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

/** The engine that announced itself last, if its process lives; it may be starting. */
export function lockHolder(layout: Layout): ProcessIdentity | undefined {
  try {
    const holder = JSON.parse(readFileSync(holderFile(layout), "utf8")) as ProcessIdentity;
    return isAlive(holder) ? holder : undefined;
  } catch {
    // Nobody was here yet, or is just writing it.
    return undefined;
  }
}
