import { spawnSync } from "node:child_process";
import { realpathSync, statSync } from "node:fs";
import path from "node:path";
import { EngineError } from "./engine-error.ts";
import type { RoleUser } from "./role-user.ts";
import { modeOf } from "./root-files.ts";

/**
 * Throws where a role's user cannot get to the data directory because one above it is closed to others, as those of
 * `mktemp -d` and the homes of most users are. Preconditions: the data directory exists; the caller is root.
 */
export function assertReachable(dataDir: string, user: RoleUser): void {
  const closed = closedAncestor(dataDir, (dir) => canEnter(dir, user));
  if (closed === undefined) return;
  throw new EngineError(closedSentence(closed, dataDir), { code: "denied" });
}

/** What is wrong with a directory above the data directory that a role's user cannot enter. */
export function closedSentence(closed: string, dataDir: string): string {
  return `the engine's unprivileged users cannot enter ${closed} (mode ${modeOf(statSync(closed))}), which is above the data directory ${dataDir}; let others through with: chmod o+x ${closed}, or choose another --data-dir`;
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

/** Whether a user gets through a directory; one that is still to be made gets only what everybody does. */
export function canEnter(dir: string, user: RoleUser | undefined): boolean {
  if ((statSync(dir).mode & 0o001) !== 0) return true;
  if (user === undefined) return false;
  const { uid, gid } = user;
  // Owner, group and access lists may let the user in all the same: the kernel knows.
  return spawnSync("test", ["-x", dir], { uid, gid, stdio: "ignore" }).status === 0;
}
