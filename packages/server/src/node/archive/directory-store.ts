import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import { ArchiveError } from "./archive-error.ts";
import { type ArchiveStore, type StoredContent, textBytesMax } from "./archive-store.ts";

/** Ends the name of what is being written; no object's own name does. */
const workSuffix = ".new";

/** Archives in a directory: of another disk, or of another machine that is mounted here. */
export class DirectoryStore implements ArchiveStore {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  async has(name: string, { sizeBytes, sha256 }: StoredContent, signal: AbortSignal): Promise<boolean> {
    const found = await this.#look(name);
    if (found?.size !== sizeBytes) return false;
    return (await this.#digest(this.#fileOf(name), signal)) === sha256;
  }

  async putFile(name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void> {
    await this.#write(name, createReadStream(file.path, { signal }));
    if (!(await this.has(name, file, signal))) throw new ArchiveError("damaged", `${name} is not what was written`);
  }

  async getFile(name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void> {
    if ((await this.#look(name)) === undefined) throw new ArchiveError("not-found", `${name} is not in the archive`);
    const hash = createHash("sha256");
    const handle = await open(file.path, "w", 0o600);
    try {
      for await (const bytes of createReadStream(this.#fileOf(name), { signal })) {
        hash.update(bytes);
        await handle.writeFile(bytes);
      }
    } catch (error) {
      throw asArchiveError(name, error, signal);
    } finally {
      await handle.close();
    }
    if (hash.digest("hex") !== file.sha256) throw new ArchiveError("damaged", `${name} is not what was written`);
  }

  async putText(name: string, text: string): Promise<void> {
    await this.#write(name, [Buffer.from(text)]);
  }

  async getText(name: string, signal: AbortSignal): Promise<string | undefined> {
    const found = await this.#look(name);
    if (found === undefined) return undefined;
    if (found.size > textBytesMax) throw new ArchiveError("damaged", `${name} is longer than ${textBytesMax} bytes`);
    return readFile(this.#fileOf(name), { encoding: "utf8", signal }).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return undefined;
      throw asArchiveError(name, error, signal);
    });
  }

  async list(prefix: string): Promise<readonly string[]> {
    const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
    try {
      const entries = await readdir(path.join(this.#root, folder), { withFileTypes: true, recursive: true });
      return entries
        .filter((entry) => entry.isFile() && !entry.name.endsWith(workSuffix))
        .map((entry) => path.relative(this.#root, path.join(entry.parentPath, entry.name)))
        .filter((name) => name.startsWith(prefix))
        .sort();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw asArchiveError(prefix, error);
    }
  }

  async remove(name: string): Promise<void> {
    const file = this.#fileOf(name);
    try {
      await this.#removeWork(file);
      await rm(file, { force: true });
      await syncDirectory(path.dirname(file));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw asArchiveError(name, error);
    }
  }

  /** A name of our own making; what else a caller could mean by it is not looked up. */
  #fileOf(name: string): string {
    if (!/^[a-z0-9][a-z0-9./-]*$/.test(name) || name.includes(".."))
      throw new ArchiveError("invalid", `"${name}" is not the name of an object`);
    return path.join(this.#root, name);
  }

  async #look(name: string): Promise<{ readonly size: number } | undefined> {
    try {
      return await stat(this.#fileOf(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw asArchiveError(name, error);
    }
  }

  async #digest(file: string, signal: AbortSignal): Promise<string> {
    const hash = createHash("sha256");
    try {
      for await (const bytes of createReadStream(file, { signal })) hash.update(bytes);
    } catch (error) {
      throw asArchiveError(file, error, signal);
    }
    return hash.digest("hex");
  }

  async #write(name: string, pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const file = this.#fileOf(name);
    const work = `${file}.${randomUUID()}${workSuffix}`;
    try {
      const made = await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
      await this.#removeWork(file);
      const handle = await open(work, "wx", 0o600);
      try {
        for await (const piece of pieces) await handle.writeFile(piece);
        await handle.sync();
        await rename(work, file);
      } catch (error) {
        await rm(work, { force: true });
        throw error;
      } finally {
        await handle.close();
      }
      await syncDirectory(path.dirname(file));
      if (made !== undefined) await syncDirectory(path.dirname(made));
    } catch (error) {
      throw asArchiveError(name, error);
    }
  }

  /** What a killed process left of an earlier attempt. Nobody else writes this name. */
  async #removeWork(file: string): Promise<void> {
    const base = `${path.basename(file)}.`;
    const directory = path.dirname(file);
    for (const name of await readdir(directory))
      if (name.startsWith(base) && name.endsWith(workSuffix)) await rm(path.join(directory, name), { force: true });
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function asArchiveError(name: string, error: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (error instanceof ArchiveError) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  const isDenied = code === "EACCES" || code === "EPERM" || code === "EROFS";
  return new ArchiveError(isDenied ? "denied" : "unavailable", `${name}: ${message}`, { cause: error });
}
