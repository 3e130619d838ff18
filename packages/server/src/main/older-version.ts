import { execFileSync } from "node:child_process";
import { globSync, lstatSync, readFileSync } from "node:fs";
import path from "node:path";
import { cutOffRestore } from "./data-replacement.ts";
import { EngineError } from "./engine-error.ts";
import { EngineLock } from "./engine-lock.ts";
import type { Layout } from "./layout.ts";
import { mountsBelow } from "./mounts.ts";
import { removeTree } from "./remove-tree.ts";
import { assertRootPath } from "./root-files.ts";

// Versions before one user per role had directories that belonged to the user `agent-sandbox`. Whatever is in those may have been written by
// an attacker in any role, so nothing of it is used, and nothing of it is taken along.

/** The directories that were the engine's own. */
const olderDirectories = ["db", "pki", "images", "sandboxes", "logs"];

/** Throws where an engine of this version could not start, and says what to do. */
export function assertUsable(layout: Layout): void {
  if (isOfOlderVersion(layout)) throw olderVersion(layout);
  const cutOff = cutOffRestore(layout.dataDir);
  if (cutOff !== undefined) throw new EngineError(cutOff, { code: "conflict" });
  assertRootPath(layout.dataDir);
  assertRootPath(layout.runDir);
}

/** Whether the data or the run directory was made by such a version. */
export function isOfOlderVersion({ dataDir, runDir }: Layout): boolean {
  return [runDir, ...olderDirectories.map((name) => path.join(dataDir, name))].some(isForeign);
}

function isForeign(dir: string): boolean {
  return (lstatSync(dir, { throwIfNoEntry: false })?.uid ?? 0) !== 0;
}

/** What to do about one. */
export function olderVersion({ dataDir }: Layout): EngineError {
  return new EngineError(
    `${dataDir} was made by an older version; start with a fresh --data-dir, or delete everything with: agent-sandbox down --purge --data-dir ${dataDir}`,
    { code: "conflict" },
  );
}

/** Ends the sandboxes of such an engine and deletes its files; the rest of it bears the instance's name and is swept like that of any other. */
export async function removeOlderVersion(layout: Layout): Promise<void> {
  const { dataDir, runDir, instance } = layout;
  assertRootPath(dataDir);
  {
    using lock = isThere(dataDir) ? EngineLock.takeIn(dataDir) : undefined;
    if (lock === undefined && isThere(dataDir))
      throw new EngineError(`an engine of an older version runs on ${dataDir}; stop it with that version first`, {
        code: "conflict",
      });
    killMembers(instance);
    unmountBelow([dataDir, runDir]);
    await removeTree(dataDir);
  }
  await removeTree(runDir);
}

const isThere = (dir: string): boolean => lstatSync(dir, { throwIfNoEntry: false }) !== undefined;

/** Every process in the cgroups of an instance: its sandboxes, and nothing else. */
function killMembers(instance: string): void {
  const groups = `/sys/fs/cgroup{,/*}/agent-sandbox-${instance}/{,**/}cgroup.procs`;
  for (const file of globSync(groups))
    for (const pid of readFileSync(file, "utf8").trim().split("\n").filter(Boolean)) killQuietly(Number(pid));
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}

function unmountBelow(dirs: readonly string[]): void {
  // What was mounted last may lie on what was mounted before.
  for (const point of mountsBelow(dirs).toReversed())
    execFileSync("umount", ["--lazy", "--", point], { stdio: "ignore" });
}
