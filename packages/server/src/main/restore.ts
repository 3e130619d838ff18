import { execFile } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statfsSync,
} from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import type { Part } from "../backup/archive-writer.ts";
import { BackupError, fileError } from "../backup/backup-error.ts";
import { type Manifest, ownerOf, type PartOwner } from "../backup/manifest.ts";
import { writeSparse } from "../backup/sparse-file.ts";
import type { TarFile } from "../backup/tar-header.ts";
import {
  closeStaging,
  cutOffRestore,
  dataIn,
  movedFrom,
  openStaging,
  putBack,
  replaceData,
} from "./data-replacement.ts";
import { EngineLock } from "./engine-lock.ts";
import { readEngineRecord } from "./engine-record.ts";
import { fileStamp } from "./file-stamp.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { mountsBelow } from "./mounts.ts";
import { isNetworkUsed } from "./pod-network.ts";
import { BackupFile } from "./read-backup.ts";
import { ensureRoleUsers, type RoleUser, roleNames } from "./role-user.ts";
import { assertRootPath } from "./root-files.ts";

const execute = promisify(execFile);

/** What to restore, and where to. */
export interface RestoreOptions {
  readonly from: string;
  readonly dataDir: string;
  readonly passphrase?: string;
  /** Moves what is in the way to another name. */
  readonly force: boolean;
  readonly nowMs: number;
}

/** What was restored. */
export interface RestoreReport {
  readonly manifest: Manifest;
  readonly parts: readonly Part[];
  /** Where the former data went, if there was any. */
  readonly movedTo?: string;
  /** This machine has another use for the range that addresses of sandboxes are from. */
  readonly isNetworkTaken: boolean;
}

/**
 * Puts a backup into a data directory, after all of it was read and checked once. The next `up` finds an engine there that was stopped. Throws
 * `BackupError`, and `EngineError` for a directory that no engine could use; the directory has the data then that it had before, unless
 * the message says that moving it back failed too, and where it is.
 */
export async function restore(options: RestoreOptions): Promise<RestoreReport> {
  if (process.getuid?.() !== 0) throw new BackupError("denied", "restoring an engine needs root; run it again as root");
  await using file = await BackupFile.open(options.from, options.passphrase);
  const checked = await file.read(async () => {});
  const layout = layoutOf(options.dataDir);
  assertRootPath(layout.dataDir);
  assertReplaceable(layout, options);
  // An engine that is starting has no record, and has the lock.
  using _lock = await EngineLock.take(layout);
  assertReplaceable(layout, options);
  const dir = realpathSync(layout.dataDir);
  const movedTo = await replace(dir, `${dir}.before-${fileStamp(options.nowMs)}`, async (tree) => {
    assertRoom(checked.parts, dir);
    const writer = new TreeWriter(tree);
    await file.read((part, bytes) => writer.write(part, bytes));
    await writer.giveAway();
  });
  return {
    manifest: checked.manifest,
    parts: checked.parts,
    ...(movedTo !== undefined && { movedTo }),
    isNetworkTaken: isTaken(layout),
  };
}

/** Has the new data written, and puts it into the place of the old; resolves to where the old data is, if there was any. */
async function replace(
  dir: string,
  aside: string,
  write: (tree: string) => Promise<void>,
): Promise<string | undefined> {
  try {
    // Of a restore that was cut off.
    await putBack(dir);
    await write(openStaging(dir));
    await settle(dir);
    replaceData(dir, aside);
    await settle(dir);
    const movedTo = movedFrom(dir);
    await closeStaging(dir);
    return movedTo;
  } catch (error) {
    throw await undone(dir, error);
  }
}

/** Puts the old data back, and says how that went. */
async function undone(dir: string, cause: unknown): Promise<BackupError> {
  const movedTo = movedFrom(dir);
  try {
    await putBack(dir);
  } catch (error) {
    const old = movedTo === undefined ? "" : `; the data that was there before is in ${movedTo}`;
    return new BackupError(
      "file",
      `the backup could not be restored into ${dir} (${(cause as Error).message}), and that could not be undone (${(error as Error).message})${old}`,
      { cause },
    );
  }
  return fileError(`the backup could not be restored into ${dir}, which has what it had before`, cause);
}

/** Throws where an engine runs, and where there is data that may not, or cannot, be moved. */
function assertReplaceable(layout: Layout, options: RestoreOptions): void {
  assertStopped(layout);
  assertMovable(layout, options);
}

function assertStopped(layout: Layout): void {
  const running = readEngineRecord(layout);
  if (running !== undefined)
    throw new BackupError(
      "exists",
      `an engine is running on ${layout.dataDir} (pid ${running.supervisor.pid}); stop it with agent-sandbox down, or choose another --data-dir`,
    );
  const dir = existsSync(layout.dataDir) ? realpathSync(layout.dataDir) : layout.dataDir;
  const [inside] = mountsBelow([dir]);
  if (inside !== undefined)
    throw new BackupError(
      "exists",
      `sandboxes of ${layout.dataDir} are still there (${inside} is mounted); end them with agent-sandbox down`,
    );
}

function assertMovable({ dataDir }: Layout, { force }: RestoreOptions): void {
  if (!existsSync(dataDir)) return;
  const dir = realpathSync(dataDir);
  if (!lstatSync(dir).isDirectory()) throw new BackupError("exists", `${dataDir} is not a directory`);
  const cutOff = cutOffRestore(dir);
  if (cutOff !== undefined && !force) throw new BackupError("exists", cutOff);
  const [found] = dataIn(dir);
  if (found === undefined) return;
  if (!force)
    throw new BackupError(
      "exists",
      `${dataDir} is not empty (it has ${found}); choose another --data-dir, or move what is there aside with --force`,
    );
  if (lstatSync(dir).dev !== lstatSync(path.dirname(dir)).dev)
    throw new BackupError(
      "exists",
      `what is in ${dataDir} cannot be moved aside, because that is a file system of its own; empty it, or choose another --data-dir`,
    );
}

/** The old data stays on the same disk. */
function assertRoom(parts: readonly Part[], dir: string): void {
  const needed = parts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const { bavail, bsize } = statfsSync(dir);
  if (needed > bavail * bsize)
    throw new BackupError(
      "file",
      `the disk of ${dir} has ${bavail * bsize} bytes free and the backup needs ${needed}; make room, or choose another --data-dir`,
    );
}

/** Others pass through to what is theirs. */
const passage = 0o711;

/**
 * Writes parts below a directory of root's in which nobody else can do anything. Only when all are there is each given to its role, files before
 * the directories that hold them: root goes into no directory that was given away.
 */
class TreeWriter {
  readonly #root: string;
  readonly #files: { readonly name: string; readonly owner: PartOwner }[] = [];

  constructor(root: string) {
    this.#root = root;
    mkdirSync(root, { mode: 0o700 });
  }

  async write({ name, realBytes }: TarFile, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    const owner = ownerOf(name);
    if (owner === undefined) throw new BackupError("unsupported", `no place is known for ${JSON.stringify(name)}`);
    const file = path.join(this.#root, name);
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    const handle = await open(file, "wx", 0o600);
    try {
      if (realBytes === undefined) await writePlain(handle, bytes);
      else await writeSparse(handle, bytes, realBytes);
    } finally {
      await handle.close();
    }
    this.#files.push({ name, owner });
  }

  async giveAway(): Promise<void> {
    const users = await ensureRoleUsers();
    const engine = path.join(this.#root, "engine");
    for (const { name, owner } of this.#files) if (owner !== "root") chown(path.join(this.#root, name), users[owner]);
    for (const role of roleNames) giveDirectory(path.join(engine, role), users[role]);
    if (existsSync(engine)) chmodSync(engine, passage);
    // Everybody may read which network and node it is, as of an engine that was never restored.
    for (const { name } of this.#files)
      if (/^(network|node)\.json$/.test(name)) chmodSync(path.join(this.#root, name), 0o644);
  }
}

async function writePlain(handle: FileHandle, bytes: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of bytes) await handle.writeFile(chunk);
}

/** Gives a directory away after those below it. */
function giveDirectory(dir: string, user: RoleUser): void {
  if (!existsSync(dir)) return;
  for (const entry of readdirSync(dir, { withFileTypes: true }))
    if (entry.isDirectory()) giveDirectory(path.join(dir, entry.name), user);
  chown(dir, user);
}

function chown(file: string, { uid, gid }: RoleUser): void {
  chownSync(file, uid, gid);
}

/** Waits until a directory and all below it outlast a loss of power. */
async function settle(dir: string): Promise<void> {
  await execute("sync", ["--file-system", "--", dir]);
}

function isTaken({ dataDir }: Layout): boolean {
  try {
    return isNetworkUsed(readFileSync(path.join(dataDir, "network.json"), "utf8"));
  } catch {
    // The backup has none, and the engine chooses one.
    return false;
  }
}
