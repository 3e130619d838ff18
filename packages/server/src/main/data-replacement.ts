import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
} from "node:fs";
import path from "node:path";
import { removeTree } from "./remove-tree.ts";
import { writeFresh } from "./root-files.ts";

// A restore writes all of the new data below `.restoring` of the data directory while the old data stays in place. Only then the old entries are
// renamed into a directory beside it, and the new ones to where those were. `.restoring` stays until all of that is on the disk, and an
// engine refuses to start as long as it is there. The directory itself stays, and with it the file by which it is locked.

/** As long as it is there, the data directory is not complete. */
const stagingName = ".restoring";

/** Below the staging directory: the new data, and what is known of the old. */
const treeName = "tree";
const recordName = "replaced.json";

/** What a data directory has besides data: a fresh file system's own, the lock, and the restore itself. */
const keptNames: ReadonlySet<string> = new Set(["lost+found", "engine.lock", stagingName]);

/** Written before the first entry is renamed. */
interface ReplacementRecord {
  /** The entries of the old data. */
  readonly old: readonly string[];
  /** Those of the new. */
  readonly fresh: readonly string[];
  /** Where they go; absent where there are none. */
  readonly movedTo?: string;
}

/** The names of the data in a directory. */
export function dataIn(dir: string): readonly string[] {
  return readdirSync(dir).filter((name) => !keptNames.has(name));
}

/** Makes the staging directory, and answers where the new data is to be written. Preconditions: none is there, and the caller has the lock. */
export function openStaging(dir: string): string {
  mkdirSync(path.join(dir, stagingName), { mode: 0o700 });
  return path.join(dir, stagingName, treeName);
}

/** Moves the old data to `movedTo`, which must not be there, and the new data into its place. Where it throws, `putBack` undoes it. */
export function replaceData(dir: string, movedTo: string): void {
  moveOldAside(dir, movedTo);
  const tree = path.join(dir, stagingName, treeName);
  for (const name of readdirSync(tree)) renameSync(path.join(tree, name), path.join(dir, name));
}

/** The first half of it. Exported for tests. */
export function moveOldAside(dir: string, movedTo: string): void {
  const old = dataIn(dir);
  if (old.length > 0) {
    mkdirSync(movedTo, { mode: 0o700 });
    chmodSync(movedTo, lstatSync(dir).mode & 0o7777);
  }
  const fresh = readdirSync(path.join(dir, stagingName, treeName));
  const record: ReplacementRecord = { old, fresh, ...(old.length > 0 && { movedTo }) };
  writeFresh(path.join(dir, stagingName, recordName), JSON.stringify(record));
  for (const name of old) renameSync(path.join(dir, name), path.join(movedTo, name));
}

/** Ends a replacement. The record goes first: without it, what is in the directory counts as whole. */
export async function closeStaging(dir: string): Promise<void> {
  rmSync(path.join(dir, stagingName, recordName), { force: true });
  await removeTree(path.join(dir, stagingName));
}

/** Makes the old data that of the directory again, however far a replacement came. Does nothing where there is none. Preconditions: the caller has the lock. */
export async function putBack(dir: string): Promise<void> {
  const record = readRecord(dir);
  if (record !== undefined) moveBack(dir, record);
  await closeStaging(dir);
}

function moveBack(dir: string, { old, fresh, movedTo }: ReplacementRecord): void {
  // Somebody has taken it elsewhere, or all of it is back.
  if (movedTo !== undefined && !existsSync(movedTo)) return;
  const tree = path.join(dir, stagingName, treeName);
  mkdirSync(tree, { recursive: true, mode: 0o700 });
  // An old entry is in one of two places: what has its name here while it is there is new.
  const isFresh = (name: string): boolean =>
    fresh.includes(name) && (!old.includes(name) || (movedTo !== undefined && existsSync(path.join(movedTo, name))));
  for (const name of dataIn(dir).filter(isFresh)) renameSync(path.join(dir, name), path.join(tree, name));
  if (movedTo === undefined) return;
  for (const name of readdirSync(movedTo)) renameSync(path.join(movedTo, name), path.join(dir, name));
  rmdirSync(movedTo);
}

/** What to say of a directory in which a restore was cut off; undefined where none was. */
export function cutOffRestore(dir: string): string | undefined {
  if (lstatSync(path.join(dir, stagingName), { throwIfNoEntry: false }) === undefined) return undefined;
  const begun = `a restore into ${dir} runs or was cut off`;
  const again = `agent-sandbox restore --force --data-dir ${dir} --from FILE`;
  try {
    const record = readRecord(dir);
    if (record === undefined)
      return `${begun}, and the data there is whole; if none runs, keep it with: rm -r ${path.join(dir, stagingName)}, or do it again with: ${again}`;
    const old = record.movedTo === undefined ? "" : `, and the data that was there before is in ${record.movedTo}`;
    return `${begun}${old}; if none runs, do it again with: ${again}`;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EACCES") throw error;
    return `${begun}; run this again as root to see what to do`;
  }
}

/** Where the old data of a directory is while it is being replaced. */
export function movedFrom(dir: string): string | undefined {
  return readRecord(dir)?.movedTo;
}

function readRecord(dir: string): ReplacementRecord | undefined {
  try {
    return JSON.parse(readFileSync(path.join(dir, stagingName, recordName), "utf8")) as ReplacementRecord;
  } catch (error) {
    // Without a whole record nothing was renamed.
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
