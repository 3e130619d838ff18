import { createHash } from "node:crypto";
import type {
  ArchiveFile,
  ArchivePart,
  OpenedArchive,
  PackArchiveRequest,
  SealedArchive,
  UnpackArchiveRequest,
  UnpackedArchive,
} from "./archive.ts";
import { idPattern } from "./host.ts";
import { HostError } from "./host-error.ts";

interface FakeImages {
  readonly blobs: Map<string, Uint8Array>;
  /** What is there of a file, as far as it can be put elsewhere; throws `not-found`. */
  readonly read: (file: ArchiveFile) => unknown;
  readonly place: (file: ArchiveFile, content: unknown) => void;
}

interface Packed {
  readonly kinds: readonly string[];
  readonly contents: readonly unknown[];
  readonly part: ArchivePart;
}

/** The archives of a FakeHost: all of them have one part, which is in the clear. */
export class FakeArchives {
  readonly #images: FakeImages;
  readonly #packed = new Map<string, Packed>();
  readonly #sealed = new Map<string, OpenedArchive & Packed>();
  readonly #unpacking = new Set<string>();

  constructor(images: FakeImages) {
    this.#images = images;
  }

  pack({ id, files, part, to }: PackArchiveRequest): ArchivePart | undefined {
    assertArchive(id, files);
    const found = part === 0 ? this.#packed.get(id) : undefined;
    if (to === undefined) return found?.part;
    const contents = files.map((file) => this.#images.read(file));
    if (part !== 0) throw new HostError("invalid-argument", `part: ${part} is not one, nor the next one`);
    const kinds = files.map(({ kind }) => kind);
    if (found !== undefined && found.kinds.join() !== kinds.join())
      throw new HostError("already-exists", `archive ${id} is of other files than these`);
    const bytes = new TextEncoder().encode(`part 0 of ${id}`);
    this.#images.blobs.set(to, bytes);
    const made = { sizeBytes: bytes.length, sha256: sha256(bytes), contentBytes: bytes.length, chunks: 1, last: true };
    this.#packed.set(id, { kinds, contents, part: made });
    return made;
  }

  seal(id: string, entry: unknown): SealedArchive {
    assertArchive(id, []);
    const packed = this.#packed.get(id);
    if (packed === undefined) throw new HostError("not-found", `archive ${id} is not being packed`);
    const sealed = JSON.stringify({ id, entry });
    this.#sealed.set(sealed, { ...packed, entry, parts: [packed.part] });
    return { id, sealed };
  }

  open({ id, sealed }: SealedArchive): OpenedArchive & Packed {
    const found = this.#sealed.get(sealed);
    if (found === undefined || !sealed.startsWith(JSON.stringify({ id }).slice(0, -1)))
      throw new HostError("digest-mismatch", `the entry of archive ${id} is not one`);
    return found;
  }

  unpack({ id, sealed, files, part, from }: UnpackArchiveRequest): UnpackedArchive {
    assertArchive(id, files);
    const { kinds, contents, part: packed } = this.open({ id, sealed });
    if (kinds.join() !== files.map(({ kind }) => kind).join())
      throw new HostError("invalid-argument", `files: archive ${id} has others`);
    if (from === undefined) {
      this.#unpacking.add(id);
      return { part: 0 };
    }
    if (!this.#unpacking.has(id)) throw new HostError("not-found", `archive ${id} is not being unpacked`);
    if (part !== 0) throw new HostError("invalid-argument", `part: ${part} is not the next one`);
    const bytes = this.#images.blobs.get(from);
    if (bytes === undefined) throw new HostError("not-found", `from: ${from} does not exist`);
    if (sha256(bytes) !== packed.sha256) throw new HostError("digest-mismatch", `archive ${id}: part 0 is another`);
    for (const [index, file] of files.entries()) this.#images.place(file, contents[index]);
    this.#unpacking.delete(id);
    return { part: 1, done: true };
  }

  forget(id: string): void {
    assertArchive(id, []);
    this.#packed.delete(id);
    this.#unpacking.delete(id);
  }
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function assertArchive(id: string, files: readonly ArchiveFile[]): void {
  for (const each of [id, ...files.map((file) => file.id)])
    if (!idPattern.test(each)) throw new HostError("invalid-argument", `id: "${each}" is not an id`);
}
