import { createHash, type Hash } from "node:crypto";
import { endBlocks, type Part, trailerName, trailerText } from "./archive-writer.ts";
import { BackupError } from "./backup-error.ts";
import { ByteSource } from "./byte-source.ts";
import { blockBytes, encodeHeader, paddingOf, paxValue, readUstar, type TarFile } from "./tar-header.ts";

/** Gets one file after the other; must read all of `bytes`, or none of it. */
export type PartVisitor = (file: TarFile, bytes: AsyncIterable<Uint8Array>) => Promise<void>;

/** More than the list of a backup with a hundred thousand parts takes. */
const trailerBytesMax = 64 * 1024 * 1024;
/** The records of a file with holes take less than a block. */
const paxBytesMax = blockBytes;

/**
 * Reads an archive to its end and resolves with its parts when every byte of it is one that was written: headers and padding are compared with
 * what the writer makes, contents by their digests, and nothing may follow. Throws `damaged` otherwise, `not-a-backup` where even the
 * first header is none.
 */
export async function readArchive(chunks: AsyncIterable<Uint8Array>, visit: PartVisitor): Promise<readonly Part[]> {
  return new ArchiveReader(chunks, visit).run();
}

class ArchiveReader {
  readonly #source: ByteSource;
  readonly #visit: PartVisitor;
  readonly #all = createHash("sha256");
  readonly #parts: Part[] = [];
  readonly #names = new Set<string>();

  constructor(chunks: AsyncIterable<Uint8Array>, visit: PartVisitor) {
    this.#source = new ByteSource(chunks);
    this.#visit = visit;
  }

  async run(): Promise<readonly Part[]> {
    for (;;) {
      const { file, header } = await this.#readHeader();
      if (file.name === trailerName) {
        await this.#checkTrailer(file);
        return this.#parts;
      }
      if (this.#names.has(file.name)) throw damaged(`${file.name} is in it twice`);
      this.#names.add(file.name);
      this.#all.update(header);
      await this.#readContent(file);
    }
  }

  async #readHeader(): Promise<{ readonly file: TarFile; readonly header: Buffer }> {
    const first =
      this.#parts.length === 0 ? await this.#source.readUpTo(blockBytes) : await this.#source.read(blockBytes);
    const found = first.length === blockBytes ? readUstar(first) : undefined;
    const isHeader = found !== undefined && isSize(found.sizeBytes) && isSize(found.modifiedS);
    if (!isHeader) {
      if (this.#parts.length === 0) throw new BackupError("not-a-backup", "this is no backup of agent-sandbox");
      throw damaged("a header cannot be read");
    }
    if (found.type !== "x") return { file: this.#checked(first, found), header: first };
    if (found.sizeBytes > paxBytesMax) throw damaged("a header cannot be read");
    const content = await this.#source.read(found.sizeBytes + paddingOf(found.sizeBytes).length);
    const second = await this.#source.read(blockBytes);
    const header = Buffer.concat([first, content, second]);
    const realBytes = Number(paxValue(content.toString("utf8"), "GNU.sparse.realsize"));
    const plain = readUstar(second);
    if (plain === undefined || !isSize(realBytes) || !isSize(plain.sizeBytes)) throw damaged("a header cannot be read");
    return { file: this.#checked(header, { ...plain, realBytes }), header };
  }

  /** The file that a header stands for, if the writer would have written it so. */
  #checked(header: Buffer, { name, sizeBytes, modifiedS, realBytes }: TarFile): TarFile {
    const file = { name, sizeBytes, modifiedS, ...(realBytes !== undefined && { realBytes }) };
    if (Buffer.byteLength(name) > 100 || !encodeHeader(file).equals(header)) {
      if (this.#parts.length === 0) throw new BackupError("not-a-backup", "this is no backup of agent-sandbox");
      throw damaged(`the header of ${JSON.stringify(name)} was changed`);
    }
    return file;
  }

  async #readContent(file: TarFile): Promise<void> {
    const hash = createHash("sha256");
    const bytes = this.#hashed(file.sizeBytes, hash);
    await this.#visit(file, bytes);
    for await (const _rest of bytes) continue;
    const padding = await this.#source.read(paddingOf(file.sizeBytes).length);
    this.#all.update(padding);
    this.#parts.push({ name: file.name, sizeBytes: file.sizeBytes, sha256: hash.digest("hex") });
  }

  async *#hashed(length: number, hash: Hash): AsyncGenerator<Uint8Array> {
    for await (const chunk of this.#source.stream(length)) {
      hash.update(chunk);
      this.#all.update(chunk);
      yield chunk;
    }
  }

  async #checkTrailer({ sizeBytes }: TarFile): Promise<void> {
    if (sizeBytes > trailerBytesMax) throw damaged("its list of parts is too long");
    const content = Buffer.from(trailerText(this.#parts, this.#all.digest("hex")));
    const expected = Buffer.concat([content, paddingOf(content.length), endBlocks]);
    const found = await this.#source.readUpTo(sizeBytes + paddingOf(sizeBytes).length + endBlocks.length);
    if (found.length < sizeBytes) throw damaged("it ends early");
    if (!found.subarray(0, sizeBytes).equals(content)) throw damaged(this.#difference(found.subarray(0, sizeBytes)));
    if (!found.equals(expected) || !(await this.#source.isAtEnd())) throw damaged("its end was changed");
  }

  /** Names the first part whose digest is another one than the list says. */
  #difference(found: Buffer): string {
    let listed: unknown;
    try {
      listed = (JSON.parse(found.toString("utf8")) as { parts?: unknown }).parts;
    } catch {
      return "its list of parts cannot be read";
    }
    if (!Array.isArray(listed)) return "its list of parts cannot be read";
    const wrong = this.#parts.find(({ name, sha256 }) => {
      const entry = (listed as Partial<Part>[]).find((part) => part.name === name);
      return entry?.sha256 !== sha256;
    });
    return wrong === undefined ? "its list of parts was changed" : `${wrong.name} is not what was written`;
  }
}

const isSize = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;

function damaged(why: string): BackupError {
  return new BackupError("damaged", `the backup is damaged: ${why}; make or copy it again`);
}
