import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { type PartVisitor, readArchive } from "../backup/archive-reader.ts";
import type { Part } from "../backup/archive-writer.ts";
import { BackupError, fileError } from "../backup/backup-error.ts";
import { databasePart, type Manifest, manifestName, ownerOf, parseManifest } from "../backup/manifest.ts";
import { isSealed, sealedMagicBytes, unseal } from "../backup/sealed.ts";
import { fileHeaderBytes, fileVersion, storeFormat } from "../store/schema.ts";

/** A backup that was read to its end and found whole. */
export interface CheckedBackup {
  readonly manifest: Manifest;
  readonly parts: readonly Part[];
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly isEncrypted: boolean;
}

/** A backup's file, open for as long as it is read: what was checked is what is restored. */
export class BackupFile implements AsyncDisposable {
  readonly #handle: FileHandle;
  readonly #file: string;
  readonly #passphrase: string | undefined;

  private constructor(handle: FileHandle, file: string, passphrase: string | undefined) {
    this.#handle = handle;
    this.#file = file;
    this.#passphrase = passphrase;
  }

  static async open(file: string, passphrase?: string): Promise<BackupFile> {
    try {
      const handle = await open(file, constants.O_RDONLY);
      const isFile = (await handle.stat()).isFile();
      if (isFile) return new BackupFile(handle, file, passphrase);
      await handle.close();
    } catch (error) {
      throw fileError(`cannot read ${file}`, error);
    }
    throw new BackupError("file", `cannot read ${file}: it is not a regular file`);
  }

  /** Reads all of it, hands over each part, and resolves when every byte was checked. */
  async read(visit: PartVisitor): Promise<CheckedBackup> {
    const hash = createHash("sha256");
    const isEncrypted = isSealed(await this.#readAt(0, sealedMagicBytes));
    const judge = new PartJudge(visit);
    const parts = await readArchive(this.#plain(hash, isEncrypted), (file, bytes) => judge.visit(file, bytes));
    const manifest = judge.conclude();
    const { size } = await this.#handle.stat();
    return { manifest, parts, sizeBytes: size, sha256: hash.digest("hex"), isEncrypted };
  }

  #plain(hash: ReturnType<typeof createHash>, isEncrypted: boolean): AsyncIterable<Uint8Array> {
    const raw = this.#raw(hash);
    if (!isEncrypted) return raw;
    if (this.#passphrase === undefined)
      throw new BackupError(
        "passphrase",
        `${this.#file} is encrypted; name the file with its passphrase: --passphrase-file FILE`,
      );
    return unseal(raw, this.#passphrase);
  }

  async *#raw(hash: ReturnType<typeof createHash>): AsyncGenerator<Uint8Array> {
    const chunkBytes = 256 * 1024;
    for (let position = 0; ; ) {
      const chunk = await this.#readAt(position, chunkBytes);
      if (chunk.length === 0) return;
      hash.update(chunk);
      position += chunk.length;
      yield chunk;
    }
  }

  /** At most as many bytes; none at the end. */
  async #readAt(position: number, bytesMax: number): Promise<Buffer> {
    try {
      const { bytesRead, buffer } = await this.#handle.read(Buffer.alloc(bytesMax), 0, bytesMax, position);
      return buffer.subarray(0, bytesRead);
    } catch (error) {
      throw fileError(`cannot read ${this.#file}`, error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}

/** The manifest is a few lines and one line for each part. */
const manifestBytesMax = 16 * 1024 * 1024;

/** Looks at what the parts are, besides that they are whole: manifest first, names that have a place, a database that can be read. */
class PartJudge {
  readonly #visit: PartVisitor;
  #manifest: Manifest | undefined;
  #hasDatabase = false;

  constructor(visit: PartVisitor) {
    this.#visit = visit;
  }

  readonly visit: PartVisitor = async (file, bytes) => {
    if (this.#manifest === undefined) {
      if (file.name !== manifestName || file.sizeBytes > manifestBytesMax)
        throw new BackupError("not-a-backup", "this is no backup of agent-sandbox");
      this.#manifest = parseManifest(await textOf(bytes));
      return;
    }
    if (ownerOf(file.name) === undefined)
      throw new BackupError(
        "unsupported",
        `the backup has a part that this version does not know: ${JSON.stringify(file.name)}`,
      );
    if (file.name !== databasePart) return this.#visit(file, bytes);
    this.#hasDatabase = true;
    const checked = withDatabaseChecked(bytes);
    await this.#visit(file, checked);
    // Who has no use for it must still learn that it cannot be read.
    for await (const _rest of checked) continue;
  };

  conclude(): Manifest {
    if (this.#manifest === undefined || !this.#hasDatabase)
      throw new BackupError("damaged", "the backup is damaged: it has no database");
    return this.#manifest;
  }
}

async function textOf(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bytes) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

/** Passes the bytes on, once their first ones say that this version can read them. */
async function* withDatabaseChecked(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let head: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of bytes) {
    if (head !== undefined) {
      head = Buffer.concat([head, chunk.subarray(0, fileHeaderBytes)]);
      if (head.length >= fileHeaderBytes) {
        assertReadable(fileVersion(head));
        head = undefined;
      }
    }
    yield chunk;
  }
  if (head !== undefined) assertReadable(undefined);
}

function assertReadable(version: number | undefined): void {
  if (version === undefined)
    throw new BackupError("damaged", "the backup is damaged: its database is none of this program");
  if (version !== storeFormat)
    throw new BackupError(
      "unsupported",
      `the backup's database has format ${version}, and this version of agent-sandbox reads format ${storeFormat} alone; restore it with the version that wrote it`,
    );
}
