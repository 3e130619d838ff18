import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  renameSync,
  rmSync,
  type Stats,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { EngineError } from "./engine-error.ts";
import type { RoleUser } from "./role-user.ts";

// Invariant: root opens, makes and changes files only in directories that only root can write to. Below those no name changes its
// meaning between two calls, so that looking first and acting then is safe.

const { O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** In a directory with this bit, an entry is renamed and removed by its owner alone. */
export const stickyBit = 0o1000;

/** As many links as the kernel follows. */
const linksMax = 40;

/**
 * Throws where somebody besides root could change what a path leads to: every directory and link on the way belongs to root, and where others
 * may write, they may not touch what root has there. What does not exist yet is not looked at.
 */
export function assertRootPath(target: string): void {
  let here = "/";
  let names = namesOf(path.resolve(target));
  for (let links = 0; names.length > 0; ) {
    const [name = "", ...rest] = names;
    const next = path.join(here, name);
    const found = lstatSync(next, { throwIfNoEntry: false });
    if (found === undefined) return;
    if (found.uid !== 0)
      throw new EngineError(
        `${next} belongs to user ${found.uid}, who could lead the engine elsewhere; everything above ${target} must belong to root: choose another place`,
        { code: "denied" },
      );
    if (found.isSymbolicLink()) {
      links += 1;
      if (links > linksMax)
        throw new EngineError(`${target} leads through more than ${linksMax} links`, { code: "denied" });
      names = [...namesOf(path.resolve(here, readlinkSync(next))), ...rest];
      here = "/";
      continue;
    }
    if (isOpenToOthers(found) && (found.mode & stickyBit) === 0)
      throw new EngineError(
        `others than root may rename what is in ${next} (mode ${modeOf(found)}), which is above ${target}; close it with: chmod go-w ${next}, or choose another place`,
        { code: "denied" },
      );
    here = next;
    names = rest;
  }
}

const namesOf = (absolute: string): string[] => absolute.split("/").filter((name) => name !== "");

function isOpenToOthers({ mode, gid }: Stats): boolean {
  return (mode & 0o002) !== 0 || ((mode & 0o020) !== 0 && gid !== 0);
}

/** A file's permissions as `chmod` takes them. */
export function modeOf({ mode }: Stats): string {
  return (mode & 0o7777).toString(8).padStart(4, "0");
}

/** Makes a directory of root's, or takes one that is there if only root can write to it. Preconditions: what is above it is root's. */
export function ensureRootDirectory(dir: string, mode: number): void {
  withDirectory(dir, (descriptor, found) => {
    if (found.uid !== 0) throw foreign(dir, found);
    if (isOpenToOthers(found))
      throw new EngineError(`others than root may write to ${dir} (mode ${modeOf(found)})`, { code: "denied" });
    fchmodSync(descriptor, mode);
  });
}

/** Makes a directory of a role's; `gid` may be that of others who pass through it. Preconditions: what is above it is root's. */
export function ensureRoleDirectory(dir: string, { uid, gid }: RoleUser, mode: number): void {
  withDirectory(dir, (descriptor, found) => {
    if (found.uid !== 0 && found.uid !== uid) throw foreign(dir, found);
    fchownSync(descriptor, uid, gid);
    fchmodSync(descriptor, mode);
  });
}

function withDirectory(dir: string, act: (descriptor: number, found: Stats) => void): void {
  try {
    mkdirSync(dir, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  const descriptor = openSync(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    act(descriptor, fstatSync(descriptor));
  } finally {
    closeSync(descriptor);
  }
}

function foreign(dir: string, { uid }: Stats): EngineError {
  return new EngineError(
    `${dir} belongs to user ${uid}; who made it could lead the engine elsewhere: remove it, or choose another --data-dir`,
    { code: "denied" },
  );
}

/** Opens a file that others write to, if at all, through this descriptor alone. Preconditions: its directory is root's. */
export function openForAppend(file: string): number {
  const descriptor = openSync(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
  const found = fstatSync(descriptor);
  if (found.isFile() && found.uid === 0 && found.nlink === 1) {
    fchmodSync(descriptor, 0o600);
    return descriptor;
  }
  closeSync(descriptor);
  throw new EngineError(`${file} is not a file of root's alone; remove it`, { code: "denied" });
}

/** Writes a file whole, for root and one group. Preconditions: its directory is root's. */
export function writeRootFile(file: string, text: string, readers?: Pick<RoleUser, "gid">): void {
  const partial = `${file}.new`;
  rmSync(partial, { force: true });
  writeFresh(partial, text, readers);
  renameSync(partial, file);
}

/** Makes a file that was not there; no other user can read it before it is complete. */
export function writeFresh(file: string, text: string, readers?: Pick<RoleUser, "gid">): void {
  const descriptor = openSync(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    writeFileSync(descriptor, text);
    if (readers !== undefined) {
      fchownSync(descriptor, 0, readers.gid);
      fchmodSync(descriptor, 0o640);
    }
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
