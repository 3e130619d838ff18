import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { ImageError } from "./image-error.ts";
import { manifestBytesMax } from "./manifest.ts";

/** Reads a blob from some source, starting at a byte offset that an earlier try has reached. */
export type BlobSource = (
  fromByte: number,
) => Promise<{ readonly startsAt: number; readonly bytes: AsyncIterable<Uint8Array> }>;

/** What `ensure` needs to know of a blob. */
export interface BlobRequest {
  readonly digest: string;
  /** Refused beyond; from the descriptor. */
  readonly sizeBytes: number;
  readonly source: BlobSource;
  readonly onProgress?: (bytes: number) => void;
}

/** A part that no pull continued for this long is given up. */
const partLifeMs = 24 * 60 * 60 * 1000;

/**
 * Content by digest under `images/blobs/sha256`. A blob appears under its name only when its digest has been checked;
 * a part that was cut off is continued by the next try.
 */
export class BlobStore {
  readonly #directory: string;
  readonly #underway = new Map<string, Promise<void>>();

  /** `directory` is `<data>/images/blobs/sha256`. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  pathOf(digest: string): string {
    const hex = /^sha256:([0-9a-f]{64})$/.exec(digest)?.[1];
    if (hex === undefined) throw new ImageError("malformed", `${JSON.stringify(digest)} is not a sha256 digest`);
    return join(this.#directory, hex);
  }

  async has(digest: string): Promise<boolean> {
    return (await this.sizeOf(digest)) !== undefined;
  }

  async sizeOf(digest: string): Promise<number | undefined> {
    try {
      return (await stat(this.pathOf(digest))).size;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  /** A small blob, whole. */
  async read(digest: string): Promise<Buffer> {
    const size = await this.sizeOf(digest);
    if (size === undefined) throw new ImageError("not-found", `blob ${digest} is not in the store`);
    if (size > manifestBytesMax)
      throw new ImageError("malformed", `blob ${digest} of ${size} bytes is not a manifest or configuration`);
    return readFile(this.pathOf(digest));
  }

  openStream(digest: string): NodeJS.ReadableStream {
    return createReadStream(this.pathOf(digest));
  }

  /** Stores bytes under the digest they have. */
  async put(bytes: Buffer): Promise<string> {
    const digest = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    const source: BlobSource = () => Promise.resolve({ startsAt: 0, bytes: oneChunk(bytes) });
    await this.ensure({ digest, sizeBytes: bytes.length, source });
    return digest;
  }

  /** Fetches a blob unless it is there; two callers of one digest share one fetch. */
  ensure(request: BlobRequest): Promise<void> {
    const known = this.#underway.get(request.digest);
    if (known !== undefined) return known;
    const fetched = this.#fetch(request).finally(() => this.#underway.delete(request.digest));
    this.#underway.set(request.digest, fetched);
    return fetched;
  }

  async remove(digest: string): Promise<void> {
    await rm(this.pathOf(digest), { force: true });
  }

  async list(): Promise<string[]> {
    await mkdir(this.#directory, { recursive: true, mode: 0o755 });
    const names = await readdir(this.#directory);
    return names.filter((name) => /^[0-9a-f]{64}$/.test(name)).map((name) => `sha256:${name}`);
  }

  /** Removes what was begun and not continued for a day. */
  async removeStaleParts(nowMs: number, isLeased: (digest: string) => boolean): Promise<void> {
    for (const name of await readdir(this.#directory)) {
      const hex = /^([0-9a-f]{64})\.part$/.exec(name)?.[1];
      if (hex === undefined || isLeased(`sha256:${hex}`)) continue;
      const path = join(this.#directory, name);
      const { mtimeMs } = await stat(path);
      if (nowMs - mtimeMs > partLifeMs) await rm(path, { force: true });
    }
  }

  async #fetch({ digest, sizeBytes, source, onProgress }: BlobRequest): Promise<void> {
    const path = this.pathOf(digest);
    if (await this.has(digest)) return;
    await mkdir(this.#directory, { recursive: true, mode: 0o755 });
    const partial = `${path}.part`;
    const hash = createHash("sha256");
    const resumed = await hashExisting(partial, hash, sizeBytes);
    const { startsAt, bytes } = await source(resumed);
    const file = await open(partial, startsAt === 0 ? "w" : "a", 0o644);
    try {
      const running = startsAt === 0 && resumed > 0 ? createHash("sha256") : hash;
      let written = startsAt === 0 ? 0 : resumed;
      for await (const chunk of bytes) {
        written += chunk.length;
        if (written > sizeBytes)
          throw new ImageError("digest-mismatch", `blob ${digest} is larger than its ${sizeBytes} bytes`);
        running.update(chunk);
        await file.write(chunk);
        onProgress?.(written);
      }
      const found = `sha256:${running.digest("hex")}`;
      if (written < sizeBytes)
        throw new ImageError("unavailable", `blob ${digest} ended after ${written} of ${sizeBytes} bytes`);
      if (found !== digest) throw new ImageError("digest-mismatch", `blob ${digest} has the digest ${found}`);
      await file.sync();
    } catch (error) {
      // What has the wrong content must not be continued.
      if (error instanceof ImageError && error.code === "digest-mismatch") await rm(partial, { force: true });
      throw error;
    } finally {
      await file.close();
    }
    await rename(partial, path);
  }
}

/** Feeds what an earlier try left into the hash; returns how much that is, or 0 when it cannot be continued. */
async function hashExisting(path: string, hash: Hash, sizeBytes: number): Promise<number> {
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  );
  if (size === 0 || size > sizeBytes) {
    await rm(path, { force: true });
    return 0;
  }
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return size;
}

async function* oneChunk(bytes: Buffer): AsyncIterable<Uint8Array> {
  yield bytes;
}
