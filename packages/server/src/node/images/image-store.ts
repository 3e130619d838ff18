import { join, relative } from "node:path";
import { formatImageReference, hostImage, isHostImage, isImageReference } from "@agent-sandbox/api";
import type { Clock } from "@agent-sandbox/kube";
import type { RecordShelf } from "../../durable/record-shelf.ts";
import type { Host } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";
import { BlobStore } from "./blob-store.ts";
import { ContentLeases } from "./content-leases.ts";
import { ImageError } from "./image-error.ts";
import { ImageIndex, type StoredImage, storedReference } from "./image-index.ts";
import { parseImageName } from "./image-name.ts";
import type { ReadyImage } from "./image-state.ts";
import { type Manifest, parseConfig } from "./manifest.ts";

/** What the store needs from outside. */
export interface ImageStoreOptions {
  readonly dataDir: string;
  readonly host: Host;
  readonly clock: Clock;
}

/** An image whose blobs are all in the store. */
export interface AddImageRequest {
  /** Canonical. */
  readonly name: string;
  readonly manifestDigest: string;
  readonly manifest: Manifest;
  readonly isLoaded: boolean;
}

/** The images of this node: names, blobs and unpacked layers. */
export class ImageStore {
  readonly blobs: BlobStore;
  readonly leases = new ContentLeases();
  readonly #index: ImageIndex;
  readonly #host: Host;
  readonly #clock: Clock;
  readonly #dataDir: string;
  /** Layers found unpacked, so that a start asks nothing of the host. */
  readonly #unpacked = new Set<string>();
  #hostImage: Promise<ReadyImage> | undefined;

  constructor({ dataDir, host, clock }: ImageStoreOptions) {
    this.#dataDir = dataDir;
    this.#host = host;
    this.#clock = clock;
    this.blobs = new BlobStore(join(dataDir, "images", "blobs", "sha256"));
    this.#index = new ImageIndex(join(dataDir, "images", "index.json"));
  }

  async load(shelf: RecordShelf): Promise<void> {
    await this.#index.load(shelf);
    for (const { id } of await this.#host.listLayers()) this.#unpacked.add(id);
  }

  list(): readonly StoredImage[] {
    return this.#index.all();
  }

  /** The stored image a reference means, if the node has it. A digest finds it under any tag of its repository. */
  find(reference: string): StoredImage | undefined {
    const name = parseImageName(reference);
    const exact = this.#index.get(formatImageReference(name));
    if (exact !== undefined || name.digest === undefined) return exact;
    const prefix = `${name.registry}/${name.repository}`;
    return this.#index
      .all()
      .find((image) => image.manifestDigest === name.digest && image.name.replace(/[:@][^/]*$/, "") === prefix);
  }

  /** Writes an image whose blobs are all in the store under a name. */
  async add({ name, manifestDigest, manifest, isLoaded }: AddImageRequest): Promise<StoredImage> {
    const { diffIds } = parseConfig(await this.blobs.read(manifest.config.digest));
    if (diffIds.length !== manifest.layers.length) {
      throw new ImageError(
        "malformed",
        `image ${name} has ${manifest.layers.length} layers but ${diffIds.length} diff ids`,
      );
    }
    const layers = manifest.layers.map(({ digest, size }, index) => ({
      digest,
      sizeBytes: size,
      diffId: diffIds[index] ?? "",
    }));
    const now = new Date(this.#clock.nowMs()).toISOString();
    const image: StoredImage = {
      name,
      manifestDigest,
      configDigest: manifest.config.digest,
      layers,
      sizeBytes: layers.reduce((sum, layer) => sum + layer.sizeBytes, manifest.config.size),
      isLoaded,
      storedAt: now,
      lastUsedAt: now,
    };
    await this.#index.put(image);
    return image;
  }

  /** Unpacks what is not unpacked yet; the image can be stacked afterwards. */
  async prepare(image: StoredImage, signal: AbortSignal): Promise<ReadyImage> {
    await Promise.all(image.layers.map((layer) => this.#unpack(layer, signal)));
    await this.#index.put({ ...image, lastUsedAt: new Date(this.#clock.nowMs()).toISOString() });
    return this.#ready(image);
  }

  /** Whether the image a reference means could be started at once. */
  isUnpacked(reference: string): boolean {
    const image = isImageReference(reference) ? this.find(reference) : undefined;
    return image?.layers.every(({ diffId }) => this.#unpacked.has(diffId)) ?? false;
  }

  /** The image a reference means, if it could be started at once. */
  async ready(reference: string): Promise<ReadyImage | undefined> {
    if (isHostImage(reference)) return this.hostImage();
    const image = this.find(reference);
    if (image === undefined || !image.layers.every(({ diffId }) => this.#unpacked.has(diffId))) return undefined;
    return this.#ready(image);
  }

  /** The built-in image; its identity changes with this machine's packages. */
  hostImage(): Promise<ReadyImage> {
    this.#hostImage ??= this.#readHostImage().catch((error: unknown) => {
      // The next call after the helper is back gets another answer.
      this.#hostImage = undefined;
      throw error;
    });
    return this.#hostImage;
  }

  async #readHostImage(): Promise<ReadyImage> {
    const { hostUsrDigest } = await this.#host.info();
    return {
      id: hostUsrDigest,
      reference: hostImage,
      isHostUsr: true,
      sizeBytes: 0,
      config: {
        entrypoint: [],
        cmd: ["/bin/sh"],
        env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
        user: "",
        workingDir: "/",
      },
    };
  }

  /** Forgets a name; its blobs and layers go with the next `collectGarbage`, unless shared. */
  async remove(reference: string): Promise<StoredImage> {
    const image = this.find(reference);
    if (image === undefined) throw new ImageError("not-found", `image ${reference} is not on this node`);
    await this.#index.remove(image.name);
    return image;
  }

  /** Notes that containers run on images with these references now. */
  async touch(references: ReadonlySet<string>): Promise<void> {
    const lastUsedAt = new Date(this.#clock.nowMs()).toISOString();
    const used = this.#index.all().filter((image) => references.has(storedReference(image)));
    await this.#index.put(...used.map((image) => ({ ...image, lastUsedAt })));
  }

  /** Removes blobs and layers that no name refers to, no lease holds and no root file system is stacked on. */
  async collectGarbage(signal: AbortSignal): Promise<void> {
    for (const { id } of await this.#host.listLayers(signal)) {
      if (this.#index.all().some(({ layers }) => layers.some(({ diffId }) => diffId === id))) continue;
      try {
        await this.#host.removeLayer({ id }, signal);
        this.#unpacked.delete(id);
      } catch (error) {
        // A container still runs on it: the next round removes it.
        if (!(error instanceof HostError && error.code === "busy")) throw error;
      }
    }
    // Names and leases are looked at right before each removal: a pull may have begun or ended meanwhile.
    for (const digest of await this.blobs.list())
      if (!this.leases.has(digest) && !this.#isReferenced(digest)) await this.blobs.remove(digest);
    await this.blobs.removeStaleParts(this.#clock.nowMs(), (digest) => this.leases.has(digest));
  }

  #isReferenced(digest: string): boolean {
    return this.#index
      .all()
      .some(
        ({ manifestDigest, configDigest, layers }) =>
          manifestDigest === digest || configDigest === digest || layers.some((layer) => layer.digest === digest),
      );
  }

  async #unpack({ digest, diffId }: { digest: string; diffId: string }, signal: AbortSignal): Promise<void> {
    if (this.#unpacked.has(diffId)) return;
    await this.#host.unpackLayer(
      { blobPath: relative(this.#dataDir, this.blobs.pathOf(digest)), digest, diffId },
      signal,
    );
    this.#unpacked.add(diffId);
  }

  async #ready(image: StoredImage): Promise<ReadyImage> {
    const { config } = parseConfig(await this.blobs.read(image.configDigest));
    return {
      id: image.configDigest,
      reference: storedReference(image),
      config,
      layers: image.layers.map(({ diffId }) => diffId),
      isHostUsr: false,
      sizeBytes: image.sizeBytes,
    };
  }
}
