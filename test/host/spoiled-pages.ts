import { copyFileSync, readdirSync, readlinkSync, renameSync, statSync, truncateSync } from "node:fs";
import path from "node:path";
import { setImmediate as turn } from "node:timers/promises";

/** A file of saved pages, the process that compares it, and a directory of the same file system for what is put aside. */
export interface Spoiling {
  readonly helperPid: number;
  readonly pages: string;
  readonly work: string;
}

/**
 * Lets a helper compare a whole file of pages, which it has opened, and the sentry, which opens it later, read half of it: the restore is called good, and then a page
 * cannot be read. Call before the restore; resolves with what puts the whole file back.
 */
export async function spoilOnceOpened({ helperPid, pages, work }: Spoiling): Promise<() => void> {
  const [whole, half] = [path.join(work, "whole.img"), path.join(work, "half.img")];
  copyFileSync(pages, half);
  const { size } = statSync(half);
  truncateSync(half, size / 2 - ((size / 2) % 4096));
  for (let tries = 0; !hasOpened(helperPid, pages); tries += 1) {
    if (tries > 100_000) throw new Error(`${pages} is not opened`);
    await turn();
  }
  renameSync(pages, whole);
  renameSync(half, pages);
  return () => renameSync(whole, pages);
}

/** A descriptor may be closed between the list and the look at it. */
function hasOpened(pid: number, file: string): boolean {
  const fds = `/proc/${pid}/fd`;
  try {
    return readdirSync(fds).some((fd) => readlinkSync(path.join(fds, fd), { encoding: "utf8" }) === file);
  } catch {
    return false;
  }
}
