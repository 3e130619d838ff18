import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { writeRecord } from "../../durable/record-file.ts";
import type { RecordShelf } from "../../durable/record-shelf.ts";

/** One layer of a stored image. */
export interface StoredLayer {
  readonly digest: string;
  readonly diffId: string;
  readonly sizeBytes: number;
}

/** An image in the store, under one name. */
export interface StoredImage {
  /** Canonical name, `registry/repository:tag`, or with a digest. */
  readonly name: string;
  readonly manifestDigest: string;
  /** Digest of the configuration: the image's id. */
  readonly configDigest: string;
  readonly layers: readonly StoredLayer[];
  readonly sizeBytes: number;
  /** Came from an archive: there may be no registry to ask again. */
  readonly isLoaded: boolean;
  readonly storedAt: string;
  readonly lastUsedAt: string;
}

/** `repository@digest`: what containers that run on the image are known to run on. */
export function storedReference({ name, manifestDigest }: Pick<StoredImage, "name" | "manifestDigest">): string {
  return `${name.replace(/@.*$/, "").replace(/:[^/:]*$/, "")}@${manifestDigest}`;
}

/** Which names the store knows: one JSON file, replaced in one step. Two images may share blobs. */
export class ImageIndex {
  readonly #path: string;
  readonly #images = new Map<string, StoredImage>();
  #saving: Promise<void> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
  }

  /** An index that cannot be read is an empty one: images are pulled again, and what runs has its layers. */
  async load(shelf: RecordShelf): Promise<void> {
    for (const image of (await shelf.read(this.#path, parseIndex)) ?? []) this.#images.set(image.name, image);
  }

  get(name: string): StoredImage | undefined {
    return this.#images.get(name);
  }

  all(): readonly StoredImage[] {
    return [...this.#images.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  put(...images: readonly StoredImage[]): Promise<void> {
    if (images.length === 0) return Promise.resolve();
    for (const image of images) this.#images.set(image.name, image);
    return this.#save();
  }

  remove(name: string): Promise<void> {
    this.#images.delete(name);
    return this.#save();
  }

  /** Writes are one after the other, so that the newest state is the one that stays. */
  #save(): Promise<void> {
    this.#saving = this.#saving.then(
      () => this.#write(),
      () => this.#write(),
    );
    return this.#saving;
  }

  async #write(): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true, mode: 0o755 });
    await writeRecord(this.#path, JSON.stringify({ images: this.all() }));
  }
}

function parseIndex(text: string): readonly StoredImage[] {
  const { images } = JSON.parse(text) as { readonly images?: readonly StoredImage[] };
  if (!Array.isArray(images)) throw new Error("the index has no list of images");
  return images;
}
