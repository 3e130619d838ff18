import { formatImageReference } from "@agent-sandbox/api";
import type { ContentLease } from "./content-leases.ts";
import { ImageError } from "./image-error.ts";
import type { StoredImage } from "./image-index.ts";
import { parseImageName } from "./image-name.ts";
import type { ImageStore } from "./image-store.ts";
import { choosePlatform, type Descriptor, digestOf, type Manifest, parseManifest } from "./manifest.ts";
import type { RegistryCredentials } from "./registry-auth.ts";
import { type Fetch, RegistryClient, type RegistryEndpoint } from "./registry-client.ts";

/** Layers fetched at once; more gains nothing on one link and costs memory. */
const layersAtOnceMax = 4;

/** Tries of one blob; a link that breaks more often than this is left to the back-off. */
const blobTriesMax = 5;

/** Tries in a row that brought nothing: one connection may be unlucky, a registry that sends nothing is down. */
const fruitlessTriesMax = 2;

/** Largest layer that is fetched; a guard against a registry that never ends. */
const layerBytesMax = 64 * 2 ** 30;

/** How far a pull is. */
export interface PullProgress {
  readonly doneBytes: number;
  readonly totalBytes: number;
}

/** What the operator configured about registries. */
export interface RegistryConfig {
  /** Other addresses to try first, by registry name. */
  readonly mirrors: Readonly<Record<string, readonly string[]>>;
  /** Registries spoken to over plain HTTP; those on this machine's loopback always are, if they have a port. */
  readonly insecure: readonly string[];
}

/** One pull. */
export interface PullRequest {
  readonly store: ImageStore;
  readonly reference: string;
  readonly architecture: string;
  readonly registries: RegistryConfig;
  /** Credentials by registry; tried in order after none. */
  readonly credentials: readonly ReadonlyMap<string, RegistryCredentials>[];
  readonly fetch: Fetch;
  readonly onProgress?: (progress: PullProgress) => void;
  readonly signal: AbortSignal;
}

/** Fetches an image into the store: the first endpoint and credential that has it wins. */
export async function pullImage(request: PullRequest): Promise<StoredImage> {
  const name = parseImageName(request.reference);
  const failures: ImageError[] = [];
  for (const endpoint of endpointsOf(name.registry, request)) {
    const client = new RegistryClient({
      endpoint,
      repository: name.repository,
      fetch: request.fetch,
      signal: request.signal,
    });
    try {
      return await pullFrom(client, request);
    } catch (error) {
      if (!(error instanceof ImageError)) throw error;
      // Another endpoint cannot repair what the image itself lacks.
      if (error.code === "no-platform" || error.code === "malformed") throw error;
      failures.push(error);
    }
  }
  throw worst(failures, request.reference);
}

async function pullFrom(client: RegistryClient, request: PullRequest): Promise<StoredImage> {
  const { store, reference, architecture } = request;
  using lease = store.leases.open();
  const name = parseImageName(reference);
  const { bytes, digest } = await client.manifest(name.digest ?? name.tag ?? "latest");
  const parsed = parseManifest(bytes);
  if (parsed.kind === "manifest")
    return await fetchImage({ client, request, lease, digest, bytes, manifest: parsed.manifest });
  const chosen = choosePlatform(parsed.index, architecture, reference);
  const inner = await client.manifest(chosen.digest);
  const manifest = parseManifest(inner.bytes);
  if (manifest.kind !== "manifest") throw new ImageError("malformed", `image ${reference} is an index of indexes`);
  lease.add(digest);
  await store.blobs.put(bytes);
  return await fetchImage({ client, request, lease, digest, bytes: inner.bytes, manifest: manifest.manifest });
}

interface Fetching {
  readonly client: RegistryClient;
  readonly request: PullRequest;
  readonly lease: ContentLease;
  /** Of what the name points at: the index, where there is one. */
  readonly digest: string;
  readonly bytes: Buffer;
  readonly manifest: Manifest;
}

async function fetchImage({ client, request, lease, digest, bytes, manifest }: Fetching): Promise<StoredImage> {
  const { store, onProgress } = request;
  const parts = [manifest.config, ...manifest.layers];
  for (const part of [...parts, { digest: digestOf(bytes) }]) lease.add(part.digest);
  const totalBytes = parts.reduce((sum, part) => sum + part.size, 0);
  const done = new Map<string, number>();
  const report = (part: Descriptor, count: number): void => {
    done.set(part.digest, count);
    onProgress?.({ doneBytes: [...done.values()].reduce((sum, value) => sum + value, 0), totalBytes });
  };
  const queue = [...parts];
  const work = async (): Promise<void> => {
    for (let part = queue.shift(); part !== undefined; part = queue.shift()) {
      const wanted = part;
      if (wanted.size > layerBytesMax)
        throw new ImageError("malformed", `layer ${wanted.digest} of ${wanted.size} bytes is too large`);
      await fetchBlob(store, client, wanted, (count) => report(wanted, count));
      report(wanted, wanted.size);
    }
  };
  // All are waited for, so that none of them writes on after the lease has ended.
  const outcomes = await Promise.allSettled(Array.from({ length: layersAtOnceMax }, work));
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  await store.blobs.put(bytes);
  const name = formatImageReference(parseImageName(request.reference));
  return store.add({ name, manifestDigest: digest, manifest, isLoaded: false });
}

/** Continues a blob that breaks off, as long as tries bring it further. */
async function fetchBlob(
  store: ImageStore,
  client: RegistryClient,
  { digest, size }: Descriptor,
  onProgress: (bytes: number) => void,
): Promise<void> {
  let reached = 0;
  let fruitless = 0;
  for (let tries = 1; ; tries += 1) {
    const before = reached;
    const note = (count: number): void => {
      reached = count;
      onProgress(count);
    };
    try {
      return await store.blobs.ensure({ digest, sizeBytes: size, source: client.blob(digest), onProgress: note });
    } catch (error) {
      const isCut = error instanceof ImageError && error.code === "unavailable";
      fruitless = reached > before ? 0 : fruitless + 1;
      if (!isCut || fruitless >= fruitlessTriesMax || tries >= blobTriesMax) throw error;
    }
  }
}

/** Mirrors first, then the registry itself; with each fitting credential, then with none. */
function endpointsOf(registry: string, { registries, credentials }: PullRequest): RegistryEndpoint[] {
  const hosts = [...(registries.mirrors[registry] ?? []), registry];
  return hosts.flatMap((host) => {
    const url = registryUrl(host, registries.insecure);
    const plain = host.replace(/^https?:\/\//, "");
    const known = credentials.flatMap((set) => {
      const found = set.get(plain);
      return found === undefined ? [] : [{ url, credentials: found }];
    });
    return [...known, { url }];
  });
}

function registryUrl(host: string, insecure: readonly string[]): string {
  if (/^https?:\/\//.test(host)) return host.replace(/\/$/, "");
  const real = host === "docker.io" ? "registry-1.docker.io" : host;
  const isLoopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/.test(host);
  return `${isLoopback || insecure.includes(host) ? "http" : "https"}://${real}`;
}

/** The failure that says most: a refusal before an absence, an absence before an outage. */
function worst(failures: readonly ImageError[], reference: string): ImageError {
  const order = ["digest-mismatch", "unauthorized", "not-found", "unavailable"];
  const sorted = failures.toSorted((a, b) => order.indexOf(a.code) - order.indexOf(b.code));
  const [first] = sorted;
  if (first === undefined) return new ImageError("unavailable", `image ${reference}: no registry to ask`);
  return new ImageError(first.code, `failed to pull image "${reference}": ${first.message}`, { cause: first });
}
