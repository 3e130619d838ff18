import { createHash, randomUUID } from "node:crypto";
import { mkdir, open, rename, rm } from "node:fs/promises";
import { join, posix } from "node:path";
import type { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { formatImageReference } from "@agent-sandbox/api";
import { extract } from "tar-stream";
import { z } from "zod";
import type { ContentLease } from "./content-leases.ts";
import { ImageError } from "./image-error.ts";
import type { StoredImage } from "./image-index.ts";
import { parseImageName } from "./image-name.ts";
import type { ImageStore } from "./image-store.ts";
import { choosePlatform, type Descriptor, digestOf, type Manifest, parseManifest } from "./manifest.ts";

/** One file of an archive or of a layout directory. */
interface ArchiveEntry {
  readonly path: string;
  readonly linkTo?: string;
  readonly bytes: AsyncIterable<Uint8Array>;
}

/** Files one archive may hold; an image of 127 layers has under 400. */
const entriesMax = 4096;

/** What to load, and under which name if the archive has none. */
export interface LoadRequest {
  readonly store: ImageStore;
  /** Scratch space on the store's file system. */
  readonly scratchDir: string;
  readonly architecture: string;
  readonly name?: string;
  /** What the archive's file is called: the repository for an archive that names only a tag. */
  readonly stem?: string;
}

/** Loads an OCI archive or a docker archive, plain or gzip, from a byte stream. */
export async function loadArchive(bytes: Readable, request: LoadRequest): Promise<StoredImage[]> {
  return loadEntries(tarEntries(bytes), request);
}

async function loadEntries(entries: AsyncIterable<ArchiveEntry>, request: LoadRequest): Promise<StoredImage[]> {
  using lease = request.store.leases.open();
  return await loadLeased(entries, request, lease);
}

/** Every file becomes a blob named by what it holds; paths only tie files to each other and touch no file system. */
async function loadLeased(
  entries: AsyncIterable<ArchiveEntry>,
  request: LoadRequest,
  lease: ContentLease,
): Promise<StoredImage[]> {
  const files = new Map<string, Descriptor>();
  const links = new Map<string, string>();
  let count = 0;
  for await (const { path, linkTo, bytes } of entries) {
    count += 1;
    if (count > entriesMax) throw new ImageError("malformed", `archive has more than ${entriesMax} files`);
    if (linkTo === undefined) files.set(path, await spool(bytes, request, lease));
    else links.set(path, posix.normalize(posix.join(posix.dirname(path), linkTo)));
  }
  const fileAt = (path: string): Descriptor => {
    const found = files.get(path) ?? files.get(links.get(path) ?? "");
    if (found === undefined) throw new ImageError("malformed", `archive has no file ${JSON.stringify(path)}`);
    return found;
  };
  if (files.has("index.json")) return loadOci(fileAt, request);
  if (files.has("manifest.json")) return loadDocker(fileAt, request, lease);
  throw new ImageError("malformed", "neither an OCI layout (index.json) nor a docker archive (manifest.json)");
}

async function loadOci(fileAt: (path: string) => Descriptor, request: LoadRequest): Promise<StoredImage[]> {
  const { store, architecture } = request;
  const top = parseManifest(await store.blobs.read(fileAt("index.json").digest));
  if (top.kind !== "index") throw new ImageError("malformed", "index.json is not an image index");
  const images: StoredImage[] = [];
  for (const entry of top.index.manifests) {
    const named = archiveName(entry.annotations ?? {}, request);
    let parsed = parseManifest(await store.blobs.read(entry.digest));
    if (parsed.kind === "index") {
      parsed = parseManifest(await store.blobs.read(choosePlatform(parsed.index, architecture, named).digest));
    }
    if (parsed.kind !== "manifest") throw new ImageError("malformed", `image ${named} is an index of indexes`);
    for (const { digest } of parsed.manifest.layers) fileAt(`blobs/sha256/${digest.slice("sha256:".length)}`);
    images.push(
      await store.add({
        name: formatImageReference(parseImageName(named)),
        manifestDigest: entry.digest,
        manifest: parsed.manifest,
        isLoaded: true,
      }),
    );
  }
  return images;
}

/** What skopeo writes as the name of `oci-archive:python.tar:3.11`: a version or `latest`, and no repository. */
const tagOnly = /^(v?\d[\w.-]*|latest)$/i;

/** The name of an image of an OCI archive: the one that was asked for, the one that it has, or the file's with the tag that it has. */
function archiveName(annotations: Readonly<Record<string, string>>, { name, stem }: LoadRequest): string {
  const found = name ?? annotations["io.containerd.image.name"] ?? annotations["org.opencontainers.image.ref.name"];
  if (found === undefined) throw new ImageError("invalid-name", "the archive names no image; give it one with --name");
  if (name !== undefined || !tagOnly.test(found)) return found;
  const repository = stem === undefined ? "" : repositoryOf(stem, found);
  if (repository === "")
    throw new ImageError("invalid-name", `the archive names only a tag, "${found}"; give the image a name with --name`);
  return `${repository}:${found}`;
}

/** A file's name as a repository: `Python-3.11.tar` with the tag 3.11 is `python`. */
function repositoryOf(stem: string, tag: string): string {
  return stem
    .toLowerCase()
    .replace(/(\.oci|\.docker)?(\.tar)?(\.gz|\.tgz)?$/, "")
    .replace(new RegExp(`[-_:@.]?${tag.toLowerCase().replaceAll(".", "\\.")}$`), "")
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
}

const dockerManifest = z.array(
  z.object({ Config: z.string(), RepoTags: z.array(z.string()).nullish(), Layers: z.array(z.string()).max(512) }),
);

async function loadDocker(
  fileAt: (path: string) => Descriptor,
  request: LoadRequest,
  lease: ContentLease,
): Promise<StoredImage[]> {
  const { store, name } = request;
  const parsed = dockerManifest.safeParse(
    JSON.parse((await store.blobs.read(fileAt("manifest.json").digest)).toString("utf8")),
  );
  if (!parsed.success) throw new ImageError("malformed", "manifest.json is not a docker archive's");
  const images: StoredImage[] = [];
  for (const { Config, RepoTags, Layers } of parsed.data) {
    const manifest: Manifest = {
      config: fileAt(posix.normalize(Config)),
      layers: Layers.map((path) => fileAt(posix.normalize(path))),
    };
    const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, ...manifest }));
    lease.add(digestOf(bytes));
    const digest = await store.blobs.put(bytes);
    const names = name === undefined ? (RepoTags ?? []) : [name];
    if (names.length === 0) throw new ImageError("invalid-name", "the archive names no image; give it one with --name");
    for (const named of names)
      images.push(
        await store.add({
          name: formatImageReference(parseImageName(named)),
          manifestDigest: digest,
          manifest,
          isLoaded: true,
        }),
      );
  }
  return images;
}

/** Writes one file into the blob store under the digest it turns out to have. */
async function spool(
  bytes: AsyncIterable<Uint8Array>,
  { store, scratchDir }: LoadRequest,
  lease: ContentLease,
): Promise<Descriptor> {
  await mkdir(scratchDir, { recursive: true, mode: 0o700 });
  const path = join(scratchDir, randomUUID());
  const hash = createHash("sha256");
  let size = 0;
  const file = await open(path, "wx", 0o644);
  try {
    for await (const chunk of bytes) {
      hash.update(chunk);
      size += chunk.length;
      await file.write(chunk);
    }
    await file.sync();
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
  const digest = `sha256:${hash.digest("hex")}`;
  lease.add(digest);
  await store.blobs.list();
  await rename(path, store.blobs.pathOf(digest));
  return { digest, size };
}

async function* tarEntries(bytes: Readable): AsyncIterable<ArchiveEntry> {
  const head = await peek(bytes);
  const isGzip = head[0] === 0x1f && head[1] === 0x8b;
  const tar = extract();
  const source = isGzip ? bytes.pipe(createGunzip().on("error", (error) => tar.destroy(error))) : bytes;
  bytes.on("error", (error) => tar.destroy(error));
  source.pipe(tar);
  for await (const entry of tar) {
    const path = posix.normalize(entry.header.name).replace(/^\.?\//, "");
    if (entry.header.type === "file") yield { path, bytes: entry as AsyncIterable<Uint8Array> };
    else if ((entry.header.type === "symlink" || entry.header.type === "link") && entry.header.linkname) {
      yield { path, linkTo: entry.header.linkname, bytes: entry as AsyncIterable<Uint8Array> };
    }
    entry.resume();
  }
}

async function peek(bytes: Readable): Promise<Buffer> {
  await new Promise<void>((resolve, reject) => {
    bytes.once("readable", resolve);
    bytes.once("error", reject);
    bytes.once("end", resolve);
  });
  const chunk = (bytes.read() as Buffer | null) ?? Buffer.alloc(0);
  if (chunk.length > 0) bytes.unshift(chunk);
  return chunk;
}
