import { randomUUID } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import path from "node:path";

/** How a record is written. */
export interface RecordOptions {
  /** Default 0600. */
  readonly mode?: number;
  /** False for what a killed process must leave and a machine that lost its power has lost anyway. Default true. */
  readonly isSettled?: boolean;
}

/** Ends the name of a record that is being written; no record's own name does. */
const workSuffix = ".new";

/**
 * Replaces a record in one step: a reader sees the old one or the new one, also after a crash. By default it outlasts a loss of
 * power once this has resolved.
 */
export async function writeRecord(file: string, text: string, options: RecordOptions = {}): Promise<void> {
  const { mode = 0o600, isSettled = true } = options;
  const work = `${file}.${randomUUID()}${workSuffix}`;
  try {
    const handle = await open(work, "wx", mode);
    try {
      await handle.writeFile(text);
      if (isSettled) await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(work, file);
  } catch (error) {
    await rm(work, { force: true });
    throw error;
  }
  if (isSettled) await syncDirectory(path.dirname(file));
}

/** Makes a record that was written without waiting for the disk outlast a loss of power; one that is gone has nothing to outlast. */
export async function settleRecord(file: string): Promise<void> {
  try {
    await syncFile(file, "r+");
    await syncDirectory(path.dirname(file));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

function syncDirectory(directory: string): Promise<void> {
  return syncFile(directory, "r");
}

async function syncFile(file: string, flags: string): Promise<void> {
  const handle = await open(file, flags);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
