import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";

/** An image made in memory: blobs by digest, and the digest of its manifest. */
export interface TestImage {
  readonly blobs: ReadonlyMap<string, Buffer>;
  readonly manifestDigest: string;
  readonly layerDigests: readonly string[];
}

/** What a file holds, or where a symbolic link leads. */
export type TestFile = string | Buffer | { readonly link: string };

/** Makes an image; each layer is a set of files. */
export async function makeImage(
  layers: readonly Readonly<Record<string, TestFile>>[],
  config: Record<string, unknown> = {},
): Promise<TestImage> {
  const blobs = new Map<string, Buffer>();
  const put = (bytes: Buffer): { digest: string; size: number } => {
    const digest = digestOf(bytes);
    blobs.set(digest, bytes);
    return { digest, size: bytes.length };
  };
  const tars = await Promise.all(layers.map(makeTar));
  const layerEntries = tars.map((tar) => ({
    mediaType: "application/vnd.oci.image.layer.v1.tar+gzip",
    ...put(gzipSync(tar)),
  }));
  const configBytes = Buffer.from(
    JSON.stringify({
      architecture: "amd64",
      os: "linux",
      config,
      rootfs: { type: "layers", diff_ids: tars.map(digestOf) },
    }),
  );
  const manifest = {
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: { mediaType: "application/vnd.oci.image.config.v1+json", ...put(configBytes) },
    layers: layerEntries,
  };
  const { digest } = put(Buffer.from(JSON.stringify(manifest)));
  return { blobs, manifestDigest: digest, layerDigests: layerEntries.map((entry) => entry.digest) };
}

/** Writes an image as an OCI layout directory. */
export async function writeLayout(directory: string, name: string, image: TestImage): Promise<void> {
  await mkdir(join(directory, "blobs", "sha256"), { recursive: true });
  for (const [digest, bytes] of image.blobs)
    await writeFile(join(directory, "blobs", "sha256", digest.slice(7)), bytes);
  await writeFile(join(directory, "index.json"), indexOf(name, image));
  await writeFile(join(directory, "oci-layout"), layoutMark);
}

/** An image as one OCI archive. */
export async function makeArchive(name: string, image: TestImage): Promise<Buffer> {
  const blobs = [...image.blobs].map(([digest, bytes]) => [`blobs/sha256/${digest.slice(7)}`, bytes] as const);
  return makeTar({ ...Object.fromEntries(blobs), "index.json": indexOf(name, image), "oci-layout": layoutMark });
}

const layoutMark = JSON.stringify({ imageLayoutVersion: "1.0.0" });

function indexOf(name: string, image: TestImage): string {
  const size = image.blobs.get(image.manifestDigest)?.length ?? 0;
  const entry = { mediaType: "application/vnd.oci.image.manifest.v1+json", digest: image.manifestDigest, size };
  return JSON.stringify({
    schemaVersion: 2,
    manifests: [{ ...entry, annotations: { "io.containerd.image.name": name } }],
  });
}

/** A registry of one repository that wants a bearer token; counts what it served and can cut blobs off. */
export interface TestRegistry {
  readonly host: string;
  readonly requests: string[];
  /** The next downloads of blobs, so many, stop after so many bytes. */
  cut: { readonly times: number; readonly afterBytes: number };
  close(): Promise<void>;
}

const cutPauseMs = 100;

/** Starts a registry on loopback with one image under one tag. */
export async function startRegistry(
  image: TestImage,
  { repository, tag, password }: { repository: string; tag: string; password?: string },
): Promise<TestRegistry> {
  const requests: string[] = [];
  const registry: Pick<TestRegistry, "cut"> = { cut: { times: 0, afterBytes: 0 } };
  const server: Server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://registry");
    requests.push(`${url.pathname}${request.headers.range === undefined ? "" : ` ${request.headers.range}`}`);
    if (url.pathname === "/token") {
      const expected = `Basic ${Buffer.from(`user:${password ?? ""}`).toString("base64")}`;
      const isAllowed = password === undefined || request.headers.authorization === expected;
      response.writeHead(isAllowed ? 200 : 401).end(JSON.stringify({ token: "granted" }));
      return;
    }
    if (request.headers.authorization !== "Bearer granted") {
      const realm = `http://${request.headers.host ?? ""}/token`;
      response
        .writeHead(401, {
          "www-authenticate": `Bearer realm="${realm}",service="test",scope="repository:${repository}:pull"`,
        })
        .end();
      return;
    }
    const reference = url.pathname.split("/").at(-1) ?? "";
    const isKnown = url.pathname.startsWith(`/v2/${repository}/`);
    const bytes = isKnown ? image.blobs.get(reference === tag ? image.manifestDigest : reference) : undefined;
    if (bytes === undefined) return void response.writeHead(404).end();
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    response.writeHead(from > 0 ? 206 : 200, { "content-length": bytes.length - from });
    const { times, afterBytes } = registry.cut;
    if (url.pathname.includes("/blobs/") && times > 0) {
      registry.cut = { times: times - 1, afterBytes };
      // A reader that hears of the end right behind the bytes may drop them unread.
      response.write(bytes.subarray(from, from + afterBytes), () => setTimeout(() => response.destroy(), cutPauseMs));
      return;
    }
    response.end(bytes.subarray(from));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()));
  const { port } = server.address() as AddressInfo;
  return Object.assign(registry, {
    host: `127.0.0.1:${port}`,
    requests,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  });
}

/** A tar of files. */
export async function makeTar(files: Readonly<Record<string, TestFile>>): Promise<Buffer> {
  const tar = pack();
  for (const [name, file] of Object.entries(files)) {
    const header = { name, mtime: new Date(0), mode: 0o755 };
    if (typeof file === "string" || Buffer.isBuffer(file)) tar.entry(header, file);
    else tar.entry({ ...header, type: "symlink", linkname: file.link });
  }
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
