import type { FileHandle } from "node:fs/promises";
import { BackupError } from "./backup-error.ts";
import { ByteSource } from "./byte-source.ts";
import { blockBytes } from "./tar-header.ts";

/** More pieces than an image of 64 TiB has: the helper joins those that are less than 64 KiB apart. */
const piecesMax = 2 ** 30;

/** Writes a file with holes as GNU tar's sparse format 1.0 has it: how many pieces, place and length of each, then the pieces. */
export async function writeSparse(
  file: Pick<FileHandle, "truncate" | "write">,
  bytes: AsyncIterable<Uint8Array>,
  realBytes: number,
): Promise<void> {
  const source = new ByteSource(bytes);
  const numbers = new NumberLines(source);
  const count = await numbers.next(piecesMax);
  const pieces: { readonly at: number; readonly length: number }[] = [];
  for (let index = 0; index < count; index += 1)
    pieces.push({ at: await numbers.next(realBytes), length: await numbers.next(realBytes) });
  await file.truncate(realBytes);
  for (const { at, length } of pieces) {
    if (at + length > realBytes) throw malformed();
    let position = at;
    for await (const chunk of source.stream(length)) {
      await writeWhole(file, chunk, position);
      position += chunk.length;
    }
  }
  if (!(await source.isAtEnd())) throw malformed();
}

/** One call may write less than it was given, on a disk that becomes full for example; the next one then says why. */
async function writeWhole(file: Pick<FileHandle, "write">, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}

/** Decimal numbers, one a line, in blocks that are padded after the last of them. */
class NumberLines {
  readonly #source: ByteSource;
  #text = "";

  constructor(source: ByteSource) {
    this.#source = source;
  }

  async next(max: number): Promise<number> {
    let end = this.#text.indexOf("\n");
    while (end < 0) {
      this.#text += (await this.#source.read(blockBytes)).toString("latin1");
      end = this.#text.indexOf("\n");
      if (end < 0 && this.#text.length > 2 * blockBytes) throw malformed();
    }
    const line = this.#text.slice(0, end);
    this.#text = this.#text.slice(end + 1);
    if (!/^\d{1,16}$/.test(line) || Number(line) > max) throw malformed();
    return Number(line);
  }
}

function malformed(): BackupError {
  return new BackupError("damaged", "the backup is damaged: where the holes of a file are cannot be read");
}
