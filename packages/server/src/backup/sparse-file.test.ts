import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { writeSparse } from "./sparse-file.ts";
import { blockBytes } from "./tar-header.ts";

test("sparse files: what a call did not write is written by the next", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "sparse-"));
  try {
    const name = path.join(dir, "file");
    const content = Buffer.from(Array.from({ length: 1000 }, (_, index) => (index % 251) + 1));
    const list = Buffer.alloc(blockBytes);
    list.write(`2\n300\n${content.length}\n2000\n0\n`);
    async function* archive(): AsyncGenerator<Uint8Array> {
      yield Buffer.concat([list, content]);
    }
    {
      await using file = await open(name, "w");
      const limited = {
        truncate: (length?: number) => file.truncate(length),
        write: (bytes: Uint8Array, offset: number, length: number, position: number) =>
          file.write(bytes, offset, Math.min(length, 7), position),
      };
      await writeSparse(limited as Pick<typeof file, "truncate" | "write">, archive(), 2000);
    }
    const want = Buffer.alloc(2000);
    content.copy(want, 300);
    expect((await readFile(name)).equals(want)).toBe(true);
  } finally {
    await rm(dir, { recursive: true });
  }
});
