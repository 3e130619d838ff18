import { createHash } from "node:crypto";
import { BackupError } from "./backup-error.ts";
import { encodeHeader, paddingOf, type TarFile } from "./tar-header.ts";

/** One file of a finished archive. */
export interface Part {
  readonly name: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

/** The last file: what was written before it. */
export const trailerName = "trailer.json";

/** What the trailer says; a reader makes the same text out of what it has read and compares. */
export function trailerText(parts: readonly Part[], sha256: string): string {
  return `${JSON.stringify({ parts, sha256 })}\n`;
}

/** Two empty blocks, the end of every tar archive. */
export const endBlocks = Buffer.alloc(1024);

/** A file to be written, and its bytes. */
export interface PartSource extends Omit<TarFile, "modifiedS"> {
  readonly bytes: AsyncIterable<Uint8Array>;
}

/**
 * Writes a tar archive whose last file has the digest of every file, and of all bytes up to it. Nothing is held in memory but the list. A
 * general library hides the bytes of headers and padding, which belong to what is checked.
 */
export class ArchiveWriter {
  readonly #write: (bytes: Uint8Array) => Promise<void>;
  readonly #modifiedS: number;
  readonly #all = createHash("sha256");
  readonly #parts: Part[] = [];

  constructor(write: (bytes: Uint8Array) => Promise<void>, modifiedS: number) {
    this.#write = write;
    this.#modifiedS = modifiedS;
  }

  get parts(): readonly Part[] {
    return this.#parts;
  }

  /** Writes one file. Preconditions: `bytes` has as many as `sizeBytes` says; otherwise this throws `BackupError` and the archive is of no use. */
  async add({ bytes, ...file }: PartSource): Promise<void> {
    await this.#put(encodeHeader({ ...file, modifiedS: this.#modifiedS }));
    const hash = createHash("sha256");
    let count = 0;
    for await (const chunk of bytes) {
      count += chunk.length;
      hash.update(chunk);
      await this.#put(chunk);
    }
    if (count !== file.sizeBytes)
      throw new BackupError(
        "engine",
        `${file.name} has ${count} bytes and was said to have ${file.sizeBytes}; it changed while it was read, try again`,
      );
    await this.#put(paddingOf(count));
    this.#parts.push({ name: file.name, sizeBytes: count, sha256: hash.digest("hex") });
  }

  /** Writes a small file. */
  async addText(name: string, text: string): Promise<void> {
    const bytes = Buffer.from(text);
    await this.add({ name, sizeBytes: bytes.length, bytes: once(bytes) });
  }

  /** Writes the trailer and the end. */
  async finish(): Promise<void> {
    const content = Buffer.from(trailerText(this.#parts, this.#all.copy().digest("hex")));
    const header = encodeHeader({ name: trailerName, sizeBytes: content.length, modifiedS: this.#modifiedS });
    await this.#write(Buffer.concat([header, content, paddingOf(content.length), endBlocks]));
  }

  async #put(bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return;
    this.#all.update(bytes);
    await this.#write(bytes);
  }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
