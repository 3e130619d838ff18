import { spawnSync } from "node:child_process";
import { realpathSync, statSync } from "node:fs";
import path from "node:path";
import { EngineError } from "./engine-error.ts";
import type { EngineUser } from "./engine-user.ts";

/**
 * Throws where the engine's user cannot get to the data directory because one above it is closed to others, as those of
 * `mktemp -d` and the homes of most users are. Preconditions: the data directory exists; the caller is root.
 */
export function assertReachable(dataDir: string, user: EngineUser): void {
  const closed = closedAncestor(dataDir, (dir) => canEnter(dir, user));
  if (closed === undefined) return;
  const mode = (statSync(closed).mode & 0o7777).toString(8).padStart(4, "0");
  throw new EngineError(
    `the engine's unprivileged user cannot enter ${closed} (mode ${mode}), which is above the data directory ${dataDir}; let others through with: chmod o+x ${closed}, or choose another --data-dir`,
  );
}

/**
 * Throws where somebody besides root could put another directory in the data directory's place: root would work on what they put
 * there. Preconditions: the data directory exists.
 */
export function assertOwned(dataDir: string): void {
  for (const dir of new Set([...ancestorsOf(dataDir), ...ancestorsOf(realpathSync(dataDir))])) {
    const { uid, mode } = statSync(dir);
    // In a directory with the sticky bit, as /tmp, nobody can replace what is root's.
    if (uid === 0 && ((mode & 0o022) === 0 || (mode & 0o1000) !== 0)) continue;
    const why = uid === 0 ? "can be written by others" : `belongs to user ${uid}`;
    throw new EngineError(
      `${dir} ${why}, who could put another directory in the place of the data directory ${dataDir}; choose another --data-dir`,
    );
  }
}

/** The topmost directory above a path, or above what its links lead to, that cannot be entered. */
export function closedAncestor(dir: string, isOpen: (ancestor: string) => boolean): string | undefined {
  const above = new Set([...ancestorsOf(dir), ...ancestorsOf(realpathSync(dir))]);
  return [...above].find((ancestor) => !isOpen(ancestor));
}

function ancestorsOf(dir: string): string[] {
  const parent = path.dirname(dir);
  return parent === dir ? [] : [...ancestorsOf(parent), parent];
}

function canEnter(dir: string, { uid, gid }: EngineUser): boolean {
  if ((statSync(dir).mode & 0o001) !== 0) return true;
  // Owner, group and access lists may let the user in all the same: the kernel knows.
  return spawnSync("test", ["-x", dir], { uid, gid, stdio: "ignore" }).status === 0;
}
