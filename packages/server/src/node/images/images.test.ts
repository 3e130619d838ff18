import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { systemClock } from "@agent-sandbox/kube";
import { afterEach, expect, test } from "vitest";
import { RecordShelf } from "../../durable/record-shelf.ts";
import { FakeHost } from "../host/fake-host.ts";
import { HostError } from "../host/host-error.ts";
import { parseImageName } from "./image-name.ts";
import { ImagePuller } from "./image-puller.ts";
import { ImageStore } from "./image-store.ts";
import { resolveUser } from "./image-user.ts";
import { loadArchive } from "./load-archive.ts";
import { pullImage } from "./pull-image.ts";
import { parseChallenge, parseDockerConfig } from "./registry-auth.ts";
import { RegistryFiles } from "./registry-settings.ts";
import { makeImage, makeTar, startRegistry, type TestImage, writeLayout } from "./testing/test-image.ts";

const cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).toReversed()) await clean();
});

async function scratch(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "images-"));
  cleanups.push(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

function shelfOf(dataDir: string): RecordShelf {
  return new RecordShelf(dataDir, () => {});
}

async function newStore(): Promise<{ store: ImageStore; host: FakeHost; dataDir: string }> {
  const dataDir = await scratch();
  const host = new FakeHost();
  const store = new ImageStore({ dataDir, host, clock: systemClock });
  await store.load(shelfOf(dataDir));
  return { store, host, dataDir };
}

const plain = { mirrors: {}, insecure: [] };

async function pull(store: ImageStore, reference: string, credentials: ReturnType<typeof parseDockerConfig>[] = []) {
  return pullImage({
    store,
    reference,
    architecture: "amd64",
    registries: plain,
    credentials,
    fetch,
    signal: new AbortController().signal,
  });
}

async function registryWith(image: TestImage, password?: string) {
  const registry = await startRegistry(image, {
    repository: "team/app",
    tag: "1",
    ...(password !== undefined && { password }),
  });
  cleanups.push(() => registry.close());
  return registry;
}

test("parseImageName: a name that cannot be read is the user's mistake", () => {
  expect(parseImageName("python:3.12")).toEqual({ registry: "docker.io", repository: "library/python", tag: "3.12" });
  expect(() => parseImageName("../x")).toThrow(
    expect.objectContaining({ code: "invalid-name", message: 'invalid image name "../x"' }),
  );
});

test("parseChallenge: reads a bearer challenge", () => {
  expect(parseChallenge('Bearer realm="https://a/token",service="s",scope="repository:x:pull"')).toEqual({
    scheme: "bearer",
    parameters: { realm: "https://a/token", service: "s", scope: "repository:x:pull" },
  });
});

test("parseDockerConfig: reads auth entries by registry and ignores what is broken", () => {
  const auth = Buffer.from("user:pass:word").toString("base64");
  const found = parseDockerConfig(
    JSON.stringify({ auths: { "https://index.docker.io/v1/": { auth }, "r.io": { auth: "!" } } }),
  );
  expect(found.get("docker.io")).toEqual({ kind: "basic", username: "user", password: "pass:word" });
  expect(found.has("r.io")).toBe(false);
  expect(parseDockerConfig("not json").size).toBe(0);
});

test("pullImage: fetches manifest, configuration and layers with a bearer token", async () => {
  const image = await makeImage([{ "etc/a": "1" }, { "etc/b": "2" }], { Cmd: ["/bin/app"], User: "1000:1000" });
  const registry = await registryWith(image);
  const { store } = await newStore();
  const stored = await pull(store, `${registry.host}/team/app:1`);
  expect(stored.layers.map(({ digest }) => digest)).toEqual(image.layerDigests);
  expect(store.find(`${registry.host}/team/app:1`)?.manifestDigest).toBe(image.manifestDigest);
  expect(store.find(`${registry.host}/team/app@${image.manifestDigest}`)?.name).toBe(`${registry.host}/team/app:1`);
});

test("pullImage: uses the credentials of the registry, and fails without them", async () => {
  const registry = await registryWith(await makeImage([{ a: "1" }]), "secret");
  const { store } = await newStore();
  await expect(pull(store, `${registry.host}/team/app:1`)).rejects.toMatchObject({ code: "unauthorized" });
  const credentials = parseDockerConfig(
    JSON.stringify({ auths: { [registry.host]: { username: "user", password: "secret" } } }),
  );
  await expect(pull(store, `${registry.host}/team/app:1`, [credentials])).resolves.toMatchObject({ isLoaded: false });
});

test("pullImage: continues a layer that was cut off", async () => {
  const image = await makeImage([{ big: Array.from({ length: 5000 }, (_, index) => String(index * 7919)).join(",") }]);
  const registry = await registryWith(image);
  const { store } = await newStore();
  registry.cut = { times: 1, afterBytes: 100 };
  await pull(store, `${registry.host}/team/app:1`);
  expect(registry.requests.some((request) => request.includes("bytes="))).toBe(true);
});

test("pullImage: one connection that is cut before anything came is tried again", async () => {
  const registry = await registryWith(await makeImage([{ a: "1" }]));
  const { store } = await newStore();
  registry.cut = { times: 1, afterBytes: 0 };
  await pull(store, `${registry.host}/team/app:1`);
});

test("pullImage: connections that are cut before anything came are a failure of the registry", async () => {
  const registry = await registryWith(await makeImage([{ a: "1" }]));
  const { store } = await newStore();
  registry.cut = { times: 8, afterBytes: 0 };
  await expect(pull(store, `${registry.host}/team/app:1`)).rejects.toMatchObject({ code: "unavailable" });
});

test("ImagePuller: a helper that is away is asked again soon, and not held against the image", async () => {
  const { store, host } = await newStore();
  const info = host.info.bind(host);
  host.info = () => Promise.reject(new HostError("unavailable", "sandbox-host does not answer"));
  const puller = new ImagePuller({
    store,
    clock: systemClock,
    architecture: "amd64",
    settings: async () => ({ ...plain, credentials: new Map() }),
    fetch,
    onChange: () => undefined,
    signal: new AbortController().signal,
  });
  const wanted = { key: "pod/main", reference: "host", policy: "IfNotPresent", credentials: [] } as const;
  await puller.want(wanted);
  expect(puller.state("pod/main")).toMatchObject({ kind: "failed", reason: "ErrImagePull" });
  host.info = info;
  await expect.poll(() => puller.state("pod/main").kind, { timeout: 3_000 }).toBe("absent");
  await puller.want(wanted);
  expect(puller.state("pod/main").kind).toBe("ready");
});

test("RegistryFiles: reads mirrors and credentials anew each time, and says which file is wrong", async () => {
  const dataDir = await scratch();
  const files = new RegistryFiles(dataDir);
  expect(await files.read()).toEqual({ ...plain, credentials: new Map() });
  await writeFile(join(dataDir, "registries.json"), '{"mirrors":{"a.test":["https://b.test"]}}');
  await writeFile(join(dataDir, "docker-config.json"), '{"auths":{"a.test":{"username":"u","password":"p"}}}');
  expect(await files.read()).toMatchObject({ mirrors: { "a.test": ["https://b.test"] } });
  expect((await files.read()).credentials.get("a.test")).toEqual({ kind: "basic", username: "u", password: "p" });
  await writeFile(join(dataDir, "registries.json"), '{"mirror":{}}');
  await expect(files.read()).rejects.toThrow("registries.json");
});

test("pullImage: refuses content that does not have its digest", async () => {
  const image = await makeImage([{ a: "1" }]);
  const blobs = new Map(image.blobs);
  const [layer = ""] = image.layerDigests;
  const forged = Buffer.from(blobs.get(layer) ?? Buffer.alloc(0));
  forged[forged.length - 1] = (forged.at(-1) ?? 0) ^ 1;
  blobs.set(layer, forged);
  const registry = await registryWith({ ...image, blobs });
  const { store } = await newStore();
  await expect(pull(store, `${registry.host}/team/app:1`)).rejects.toMatchObject({ code: "digest-mismatch" });
  expect(await store.blobs.has(layer)).toBe(false);
});

test("pullImage: an image the registry does not have is not found", async () => {
  const registry = await registryWith(await makeImage([{ a: "1" }]));
  const { store } = await newStore();
  await expect(pull(store, `${registry.host}/team/app:2`)).rejects.toMatchObject({ code: "not-found" });
});

test("loadArchive: loads an archive of an OCI layout, which then can be stacked", async () => {
  const image = await makeImage([{ "etc/a": "1" }], { Entrypoint: ["/app"] });
  const layout = await scratch();
  await writeLayout(layout, "example.com/app:1", image);
  const { store, host, dataDir } = await newStore();
  const archive = execFileSync("tar", ["-C", layout, "-cf", "-", "."]);
  const request = { store, scratchDir: join(dataDir, "incoming"), architecture: "amd64" } as const;
  const [loaded] = await loadArchive(Readable.from([archive]), request);
  for (const digest of image.layerDigests)
    host.blobs.set(`images/blobs/sha256/${digest.slice(7)}`, await readFile(store.blobs.pathOf(digest)));
  const ready = await store.prepare(loaded ?? expect.unreachable(), new AbortController().signal);
  expect(ready.config.entrypoint).toEqual(["/app"]);
  expect((await store.ready("example.com/app:1"))?.id).toBe(ready.id);
});

test.each([
  ["3.11", "python.tar", "docker.io/library/python:3.11"],
  ["3.11", "Python-3.11.tar.gz", "docker.io/library/python:3.11"],
  ["latest", "my app.oci.tar", "docker.io/library/my-app:latest"],
  ["v2", "layout", "docker.io/library/layout:v2"],
  ["app", "file.tar", "docker.io/library/app:latest"],
])("loadArchive: an archive that names %j in a file %j is %s", async (reference, stem, name) => {
  const layout = await scratch();
  await writeLayout(layout, reference, await makeImage([{ "etc/a": "1" }]));
  const { store, dataDir } = await newStore();
  const archive = execFileSync("tar", ["-C", layout, "-cf", "-", "."]);
  const request = { store, scratchDir: join(dataDir, "incoming"), architecture: "amd64", stem } as const;
  const [loaded] = await loadArchive(Readable.from([archive]), request);
  expect(loaded?.name).toBe(name);
});

test("loadArchive: a tag alone without a file's name is no name, and one that was asked for wins", async () => {
  const layout = await scratch();
  await writeLayout(layout, "3.11", await makeImage([{ "etc/a": "1" }]));
  const { store, dataDir } = await newStore();
  const archive = execFileSync("tar", ["-C", layout, "-cf", "-", "."]);
  const request = { store, scratchDir: join(dataDir, "incoming"), architecture: "amd64" } as const;
  await expect(loadArchive(Readable.from([archive]), request)).rejects.toThrow(
    'the archive names only a tag, "3.11"; give the image a name with --name',
  );
  const [loaded] = await loadArchive(Readable.from([archive]), { ...request, name: "snake:3", stem: "python" });
  expect(loaded?.name).toBe("docker.io/library/snake:3");
});

test("loadArchive: loads what `docker save` writes", async () => {
  const layer = await makeTar({ "etc/a": "1" });
  const diffId = `sha256:${createHash("sha256").update(layer).digest("hex")}`;
  const config = JSON.stringify({
    architecture: "amd64",
    os: "linux",
    config: { Cmd: ["x"] },
    rootfs: { type: "layers", diff_ids: [diffId] },
  });
  const manifest = JSON.stringify([{ Config: "c.json", RepoTags: ["app:2"], Layers: ["l/layer.tar"] }]);
  const archive = await makeTar({
    "c.json": config,
    "l/layer.tar": layer.toString("latin1"),
    "manifest.json": manifest,
  });
  const { store, dataDir } = await newStore();
  const [loaded] = await loadArchive(Readable.from([archive]), {
    store,
    scratchDir: join(dataDir, "incoming"),
    architecture: "amd64",
  });
  expect(loaded).toMatchObject({ name: "docker.io/library/app:2", isLoaded: true, layers: [{ diffId }] });
});

test("loadArchive: refuses an archive that is no image", async () => {
  const { store, dataDir } = await newStore();
  const archive = Readable.from([await makeTar({ "readme.txt": "hello" })]);
  await expect(
    loadArchive(archive, { store, scratchDir: join(dataDir, "incoming"), architecture: "amd64" }),
  ).rejects.toMatchObject({ code: "malformed" });
});

test("ImageStore: removing the last name of an image frees its blobs", async () => {
  const registry = await registryWith(await makeImage([{ a: "1" }]));
  const { store } = await newStore();
  await pull(store, `${registry.host}/team/app:1`);
  await store.remove(`${registry.host}/team/app:1`);
  await store.collectGarbage(new AbortController().signal);
  expect(await store.blobs.list()).toEqual([]);
});

test("ImageStore: an index that was half written is never seen", async () => {
  const { store, dataDir, host } = await newStore();
  const registry = await registryWith(await makeImage([{ a: "1" }]));
  await pull(store, `${registry.host}/team/app:1`);
  await writeFile(join(dataDir, "images", "index.json.new"), "{");
  const again = new ImageStore({ dataDir, host, clock: systemClock });
  await again.load(shelfOf(dataDir));
  expect(again.list()).toHaveLength(1);
});

const users = {
  passwd: "root:x:0:0::/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n",
  group: "staff:x:50:node\nweb:x:33:\n",
};

test.each([
  ["", { uid: 0, gid: 0, additionalGids: [] }],
  ["node", { uid: 1000, gid: 1001, additionalGids: [50] }],
  ["1000", { uid: 1000, gid: 1001, additionalGids: [50] }],
  ["4711", { uid: 4711, gid: 0, additionalGids: [] }],
  ["node:web", { uid: 1000, gid: 33, additionalGids: [] }],
  ["12:34", { uid: 12, gid: 34, additionalGids: [] }],
  ["nobody", undefined],
  ["node:nogroup", undefined],
])("resolveUser: %j", (user, expected) => {
  expect(resolveUser(user, users)).toEqual(expected);
});
