import { constants } from "node:fs";
import { lstat, open } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { ArchiveWriter, type Part } from "../backup/archive-writer.ts";
import { BackupError, fileError } from "../backup/backup-error.ts";
import { archiveKeysPart, manifestName, manifestText, type OptionalPart, ownerOf } from "../backup/manifest.ts";
import { Sealer } from "../backup/sealed.ts";
import { HostClient } from "../node/host/host-client.ts";
import { type BackupTarget, openTarget } from "./backup-target.ts";
import { EngineLock, settledRecord } from "./engine-lock.ts";
import { exportImage, type ImageName, imagePart } from "./export-image.ts";
import { fileStamp } from "./file-stamp.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { withLoneHelper } from "./lone-helper.ts";
import { nodeFile, nodeText, readNodeName } from "./node-name.ts";
import { BackupFile } from "./read-backup.ts";
import { RoleFiles } from "./role-files.ts";
import { ensureRoleUsers, type RoleName, type RoleUsers } from "./role-user.ts";
import { nodeNameOf } from "./up.ts";
import { readVersion } from "./version.ts";

/** What to back up, and where to. */
export interface BackupOptions {
  readonly dataDir: string;
  /** A file, a directory, or `-` for standard output. */
  readonly to: string;
  readonly include: readonly OptionalPart[];
  readonly passphrase?: string;
  /** How long those who write to one volume may wait while it is copied. */
  readonly pauseMaxMs: number;
  readonly stdout: NodeJS.WritableStream;
  readonly nowMs: number;
  readonly signal: AbortSignal;
}

/** What was written. */
export interface BackupReport {
  /** Absent: it went to standard output, and was not read back. */
  readonly file?: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly parts: readonly Part[];
  /** The longest that a writer waited for one volume or layer. */
  readonly pausedMsMax: number;
}

/** Longer than an engine takes to start or to become another version. */
const engineWaitMs = 15_000;

/** Writes a backup of an engine, which may run, and reads it back. Throws `BackupError`, and `EngineError` where another command starts or stops the engine. */
export async function backup(options: BackupOptions): Promise<BackupReport> {
  if (process.getuid?.() !== 0)
    throw new BackupError("denied", "a backup has the engine's keys and needs root; run it again as root");
  const layout = layoutOf(options.dataDir);
  if ((await lstat(layout.dbFile).catch(() => undefined)) === undefined)
    throw new BackupError(
      "engine",
      `there is no engine's data in ${layout.dataDir}; name its directory with --data-dir`,
    );
  const running = await settledRecord(layout, engineWaitMs);
  if (running !== undefined) return write(options, layout, layout.hostSocket);
  using _lock = await EngineLock.take(layout);
  return withLoneHelper(layout, "backup", (socketPath) => write(options, layout, socketPath));
}

async function write(options: BackupOptions, layout: Layout, socketPath: string): Promise<BackupReport> {
  const nodeName = (await readNodeName(layout.dataDir)) ?? nodeNameOf(os.hostname());
  const createdAt = new Date(options.nowMs).toISOString();
  const target = await openTarget(options.to, fileName(nodeName, options), options.stdout);
  try {
    const sealer =
      options.passphrase === undefined
        ? undefined
        : await Sealer.open((bytes) => target.write(bytes), options.passphrase);
    const put = async (bytes: Uint8Array): Promise<void> => {
      options.signal.throwIfAborted();
      await (sealer ?? target).write(bytes);
    };
    const archive = new ArchiveWriter(put, Math.floor(options.nowMs / 1000));
    const source = new EngineSource({ archive, layout, socketPath, options, nodeName, users: await ensureRoleUsers() });
    await source.write(createdAt);
    await archive.finish();
    await sealer?.finish();
    const sha256 = await target.settle();
    await readBack(target, sha256, options.passphrase);
    options.signal.throwIfAborted();
    await target.commit();
    const { file, sizeBytes } = target;
    return {
      ...(file !== undefined && { file }),
      sizeBytes,
      sha256,
      parts: archive.parts,
      pausedMsMax: source.pausedMsMax,
    };
  } catch (error) {
    await target.discard();
    throw error;
  }
}

/** A name that sorts by time and says whose backup it is. */
function fileName(nodeName: string, { passphrase, nowMs }: BackupOptions): string {
  return `agent-sandbox-${nodeName}-${fileStamp(nowMs)}.tar${passphrase === undefined ? "" : ".enc"}`;
}

async function readBack(
  { partial, file }: BackupTarget,
  sha256: string,
  passphrase: string | undefined,
): Promise<void> {
  if (partial === undefined) return;
  await using written = await BackupFile.open(partial, passphrase);
  const found = await written.read(async () => {});
  if (found.sha256 !== sha256)
    throw new BackupError(
      "damaged",
      `${file} does not read back as it was written, and is removed; the disk may be failing`,
    );
}

interface SourceOptions {
  readonly archive: ArchiveWriter;
  readonly layout: Layout;
  readonly socketPath: string;
  readonly options: BackupOptions;
  readonly nodeName: string;
  readonly users: RoleUsers;
}

/** Volumes that come and go while they are copied; beyond this many rounds something else is wrong. */
const roundsMax = 5;

/** What root keeps in the data directory itself: settings, and the network that addresses of sandboxes are from. */
const settingsFiles = ["network.json", "registries.json", "docker-config.json"];

/**
 * Puts an engine into an archive. Invariant: no database is in a backup that names a volume which was there and is not in it. Volumes come first; the
 * database is copied then, and what it may name beyond them is added before it is written; if one of those has gone meanwhile, the
 * database is copied again.
 */
class EngineSource {
  readonly #to: SourceOptions;
  readonly #exported = new Set<string>();
  pausedMsMax = 0;

  constructor(options: SourceOptions) {
    this.#to = options;
  }

  async write(createdAt: string): Promise<void> {
    const { archive, options, nodeName } = this.#to;
    const images = await this.#list();
    const parts = [...images.map(imagePart), ...settingsFiles];
    const includes = [...options.include];
    await archive.addText(
      manifestName,
      manifestText({ engineVersion: readVersion(), nodeName, createdAt, includes, parts }),
    );
    for (const image of images) await this.#export(image);
    if (options.include.includes("images"))
      await this.#addRole("node", { files: ["images/index.json"], directories: ["images/blobs/sha256"] });
    await archive.addText(nodeFile, nodeText(nodeName));
    for (const name of settingsFiles) await this.#addSetting(name);
    await this.#addRole("router", { files: ["links.key"] });
    await this.#addDatabase();
    // Keys are added to and never taken away while an archive needs them: those that are read last open everything that the database names.
    await this.#addSetting(archiveKeysPart);
  }

  async #list(): Promise<ImageName[]> {
    const { socketPath, options } = this.#to;
    const host = new HostClient({ socketPath });
    try {
      const { include, signal } = options;
      const volumes = include.includes("volumes") ? await host.listVolumes(signal) : [];
      const layers = include.includes("layers") ? await host.listWritableLayers(signal) : [];
      return [
        ...volumes.map(({ id }) => ({ kind: "volume", id }) as const),
        ...layers.map(({ key }) => ({ kind: "writable", id: key }) as const),
      ];
    } catch (cause) {
      if (options.signal.aborted) throw options.signal.reason;
      throw new BackupError("engine", `the engine's helper does not answer: ${(cause as Error).message}`, { cause });
    } finally {
      await host.close();
    }
  }

  /** False: it has gone. */
  async #export(image: ImageName): Promise<boolean> {
    const { archive, socketPath, options } = this.#to;
    const found = await exportImage(socketPath, image, options);
    if (found === undefined) return false;
    const { sizeBytes, realBytes, bytes, pausedMs } = found;
    await archive.add({ name: imagePart(image), sizeBytes, realBytes, bytes });
    this.pausedMsMax = Math.max(this.pausedMsMax, pausedMs);
    this.#exported.add(imagePart(image));
    return true;
  }

  async #addDatabase(): Promise<void> {
    const { layout, users } = this.#to;
    for (let round = 1; ; round += 1) {
      const wanted = {
        user: users.control,
        dir: layout.roles.control.dataDir,
        database: "db/store.sqlite",
        directories: ["pki"],
      };
      await using files = new RoleFiles(wanted);
      // It is copied by now, and waits to be read.
      const database = await files.next();
      if (database === undefined) throw new BackupError("engine", "the engine has no database");
      if (await this.#exportMissing()) {
        await this.#addFile("control", database);
        await this.#addRest("control", files);
        return;
      }
      if (round === roundsMax)
        throw new BackupError(
          "engine",
          "volumes come and go faster than they can be copied; try again when fewer sandboxes are made",
        );
    }
  }

  /** False: one that the database names may have gone before it was copied. */
  async #exportMissing(): Promise<boolean> {
    let isWhole = true;
    for (const image of await this.#list())
      if (!this.#exported.has(imagePart(image)) && !(await this.#export(image))) isWhole = false;
    return isWhole;
  }

  async #addRole(
    role: RoleName,
    what: { readonly files?: readonly string[]; readonly directories?: readonly string[] },
  ): Promise<void> {
    const { layout, users } = this.#to;
    await using files = new RoleFiles({ user: users[role], dir: layout.roles[role].dataDir, ...what });
    await this.#addRest(role, files);
  }

  async #addRest(role: RoleName, files: RoleFiles): Promise<void> {
    for (let file = await files.next(); file !== undefined; file = await files.next()) await this.#addFile(role, file);
  }

  /** A role tells the names of its files; only those are taken that it may have in a backup. */
  async #addFile(
    role: RoleName,
    file: { readonly name: string; readonly sizeBytes: number; readonly bytes: AsyncIterable<Uint8Array> },
  ): Promise<void> {
    const name = `engine/${role}/${file.name}`;
    if (ownerOf(name) === role) return this.#to.archive.add({ ...file, name });
    for await (const _skipped of file.bytes) this.#to.options.signal.throwIfAborted();
  }

  async #addSetting(name: string): Promise<void> {
    const { archive, layout } = this.#to;
    const file = path.join(layout.dataDir, name);
    if ((await lstat(file).catch(() => undefined)) === undefined) return;
    await archive.addText(name, await readSetting(file));
  }
}

async function readSetting(file: string): Promise<string> {
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW);
    return await handle.readFile("utf8");
  } catch (error) {
    throw fileError(`cannot read ${file}`, error);
  }
}
