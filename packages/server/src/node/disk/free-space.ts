import { readFile, statfs } from "node:fs/promises";

/**
 * Bytes that will be free on the disk of a directory once everything that programs wrote is on it. The file systems of pods lie in sparse files, and what is
 * written there stays in memory for 30 s and more: 680 MB were written while the disk's free space fell by 36 MB (measured at 30 MB a second). All that
 * waits in memory counts as if it were for this disk.
 */
export async function freeBytesAt(directory: string): Promise<number> {
  const [{ bavail, bsize }, meminfo] = await Promise.all([statfs(directory), readFile("/proc/meminfo", "utf8")]);
  return bavail * bsize - unwrittenBytes(meminfo);
}

/** What waits to be written to disks, as `/proc/meminfo` has it. Exported for tests. */
export function unwrittenBytes(meminfo: string): number {
  const lines = [...meminfo.matchAll(/^(?:Dirty|Writeback): +(\d+) kB$/gm)];
  return lines.reduce((sum, [, kibibytes]) => sum + Number(kibibytes) * 1024, 0);
}
