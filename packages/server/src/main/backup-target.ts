import { createHash, randomUUID } from "node:crypto";
import { constants, statSync } from "node:fs";
import { type FileHandle, link, lstat, open, rename, rm, unlink } from "node:fs/promises";
import path from "node:path";
import { BackupError, fileError } from "../backup/backup-error.ts";

/** Where a backup goes to. It is complete under its name, or not there. */
export interface BackupTarget {
  /** Undefined: standard output. */
  readonly file?: string;
  readonly sizeBytes: number;
  write(bytes: Uint8Array): Promise<void>;
  /** Makes what was written outlast a loss of power; resolves with its digest. */
  settle(): Promise<string>;
  /** What was written, for reading back; none where it went to standard output. */
  readonly partial?: string;
  /** Gives it its name. */
  commit(): Promise<void>;
  /** Removes what was written. */
  discard(): Promise<void>;
}

/** Opens the place that `--to` names: a file, a directory in which `name` is made, or `-`. */
export async function openTarget(to: string, name: string, stdout: NodeJS.WritableStream): Promise<BackupTarget> {
  if (to === "-") return new StreamTarget(stdout);
  const file = isDirectory(to) ? path.join(to, name) : path.resolve(to);
  if ((await lstat(file).catch(() => undefined)) !== undefined) throw existsError(file);
  const partial = path.join(path.dirname(file), `.${path.basename(file)}.${randomUUID()}.partial`);
  try {
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    return new FileTarget(file, partial, await open(partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600));
  } catch (error) {
    throw fileError(`cannot write a backup to ${file}`, error);
  }
}

function existsError(file: string): BackupError {
  return new BackupError(
    "exists",
    `${file} is there already; a backup replaces no file: remove it, or choose another name`,
  );
}

/** What file systems without hard links answer, such as those of most memory sticks. */
const withoutLinks: ReadonlySet<string> = new Set(["EPERM", "EOPNOTSUPP", "ENOTSUP", "ENOSYS", "EMLINK"]);

function isDirectory(name: string): boolean {
  return name.endsWith("/") || (statSync(name, { throwIfNoEntry: false })?.isDirectory() ?? false);
}

class FileTarget implements BackupTarget {
  readonly file: string;
  readonly partial: string;
  readonly #handle: FileHandle;
  readonly #hash = createHash("sha256");
  sizeBytes = 0;

  constructor(file: string, partial: string, handle: FileHandle) {
    this.file = file;
    this.partial = partial;
    this.#handle = handle;
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#hash.update(bytes);
    try {
      for (let at = 0; at < bytes.length; )
        at += (await this.#handle.write(bytes, at, bytes.length - at, this.sizeBytes + at)).bytesWritten;
    } catch (error) {
      throw fileError(`the backup could not be written to ${this.file}, and what there was of it is removed`, error);
    }
    this.sizeBytes += bytes.length;
  }

  async settle(): Promise<string> {
    try {
      await this.#handle.sync();
      await this.#handle.close();
    } catch (error) {
      throw fileError(`the backup could not be written to ${this.file}, and what there was of it is removed`, error);
    }
    return this.#hash.digest("hex");
  }

  async commit(): Promise<void> {
    try {
      await this.#giveName();
      await using directory = await open(path.dirname(this.file), "r");
      await directory.sync();
    } catch (error) {
      throw fileError(`the backup could not be given its name ${this.file}`, error);
    }
  }

  /** A link replaces no file, also none that appeared since the first look; a rename does. */
  async #giveName(): Promise<void> {
    try {
      await link(this.partial, this.file);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EEXIST") throw existsError(this.file);
      if (code === undefined || !withoutLinks.has(code)) throw error;
      if ((await lstat(this.file).catch(() => undefined)) !== undefined) throw existsError(this.file);
      await rename(this.partial, this.file);
      return;
    }
    await unlink(this.partial);
  }

  async discard(): Promise<void> {
    await this.#handle.close().catch(() => undefined);
    await rm(this.partial, { force: true });
  }
}

class StreamTarget implements BackupTarget {
  readonly #stream: NodeJS.WritableStream;
  readonly #hash = createHash("sha256");
  readonly #broken: Promise<never>;
  sizeBytes = 0;

  constructor(stream: NodeJS.WritableStream) {
    this.#stream = stream;
    this.#broken = new Promise((_resolve, reject) => {
      stream.once("error", (error) => reject(fileError("the backup could not be written to standard output", error)));
    });
    // The next write throws it.
    this.#broken.catch(() => undefined);
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#hash.update(bytes);
    this.sizeBytes += bytes.length;
    const written = new Promise<void>((resolve) => this.#stream.write(bytes, () => resolve()));
    await Promise.race([written, this.#broken]);
  }

  async settle(): Promise<string> {
    return this.#hash.digest("hex");
  }

  async commit(): Promise<void> {}

  async discard(): Promise<void> {}
}
