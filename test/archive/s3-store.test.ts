import { createHash, randomBytes } from "node:crypto";
import { appendFileSync, mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { NodeArchive } from "../../packages/server/src/node/archive/node-archive.ts";
import { S3Store, type S3StoreOptions } from "../../packages/server/src/node/archive/s3-store.ts";
import { FakeHost } from "../../packages/server/src/node/host/fake-host.ts";
import type { SnapshotRecord } from "../../packages/server/src/node/pods/snapshot-record.ts";
import { RecordStore } from "../../packages/server/src/node/record-store.ts";
import { createLogger } from "../../packages/server/src/telemetry/logger.ts";
import { archiveEntry, takenUid } from "./entry.ts";
import { type Fault, FaultyProxy } from "./faulty-proxy.ts";
import { bucket, S3Server, s3Credentials } from "./s3-server.ts";

let server: S3Server;
let proxy: FaultyProxy;
const work = mkdtempSync(path.join(os.tmpdir(), "s3-store-"));
beforeAll(async () => {
  server = await S3Server.open();
  proxy = await FaultyProxy.open(server.port);
});
beforeEach(() => {
  proxy.faults.clear();
  proxy.seen.length = 0;
});
afterAll(async () => {
  await proxy[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  rmSync(work, { recursive: true, force: true });
});

const { signal } = new AbortController();

function storeAt(prefix: string, more: Partial<S3StoreOptions> = {}): S3Store {
  const options = { endpoint: proxy.url, bucket, prefix, credentials: s3Credentials, idleTimeoutMs: 1000, ...more };
  // Waits between tries are of milliseconds here.
  const clock = {
    nowMs: () => systemClock.nowMs(),
    setTimer: (_ms: number, fire: () => void) => systemClock.setTimer(1, fire),
  };
  return new S3Store({ clock, random: () => 0, ...options });
}

/** A part that does not compress. */
function partOf(name: string, sizeBytes: number): { path: string; sizeBytes: number; sha256: string } {
  const bytes = randomBytes(sizeBytes);
  writeFileSync(path.join(work, name), bytes);
  return { path: path.join(work, name), sizeBytes, sha256: createHash("sha256").update(bytes).digest("hex") };
}

test("S3Store: what was put comes back, is listed and can be removed", async () => {
  const store = storeAt("plain/");
  const part = partOf("part", 1 << 20);
  await store.putFile("parts/a/000000", part, signal);
  await store.putText("index/a.json", '{"é":1}', signal);
  expect(await store.has("parts/a/000000", part, signal)).toBe(true);
  expect(await store.has("parts/a/000000", { ...part, sha256: "0".repeat(64) }, signal)).toBe(false);
  expect(await store.has("parts/a/000001", part, signal)).toBe(false);
  expect(await store.getText("index/a.json", signal)).toBe('{"é":1}');
  expect(await store.getText("index/b.json", signal)).toBeUndefined();
  expect(await store.list("", signal)).toEqual(["index/a.json", "parts/a/000000"]);
  expect(await store.list("parts/b/", signal)).toEqual([]);
  const back = { ...part, path: path.join(work, "back") };
  await store.getFile("parts/a/000000", back, signal);
  expect(await readFile(back.path)).toEqual(await readFile(part.path));
  await expect(store.getFile("parts/a/000001", back, signal)).rejects.toMatchObject({ code: "not-found" });
  for (let times = 0; times < 2; times += 1) await store.remove("parts/a/000000", signal);
  expect(await store.list("", signal)).toEqual(["index/a.json"]);
});

const onPut: readonly Fault[] = ["cut-request", "lost-answer", "error", "silent"];

test.each(onPut)("S3Store: %s while a part is sent: it is sent again, and is there once", async (fault) => {
  const store = storeAt(`put-${fault}/`);
  const part = partOf("part", 1 << 20);
  proxy.faults.set("PUT", fault === "silent" ? [fault] : [fault, fault]);
  await store.putFile("parts/a/000000", part, signal);
  expect(proxy.faults.get("PUT")).toEqual([]);
  expect(await store.list("", signal)).toEqual(["parts/a/000000"]);
  expect(server.read(`put-${fault}/parts/a/000000`)).toEqual(await readFile(part.path));
});

const onGet: readonly Fault[] = ["cut-answer", "changed-answer", "error", "silent"];

test.each(onGet)("S3Store: %s while a part is read: it is read again", async (fault) => {
  const store = storeAt(`get-${fault}/`);
  const part = partOf("part", 1 << 20);
  await store.putFile("parts/a/000000", part, signal);
  proxy.faults.set("GET", fault === "silent" ? [fault] : [fault, fault]);
  const back = { ...part, path: path.join(work, "back") };
  await store.getFile("parts/a/000000", back, signal);
  expect(proxy.faults.get("GET")).toEqual([]);
  expect(await readFile(back.path)).toEqual(await readFile(part.path));
});

test("S3Store: a slow store is waited for, and gets nothing twice", async () => {
  const store = storeAt("slow/");
  const part = partOf("part", 1 << 20);
  for (const method of ["PUT", "HEAD"]) proxy.faults.set(method, ["slow"]);
  await store.putFile("parts/a/000000", part, signal);
  expect(proxy.seen.map((line) => line.split(" ")[0])).toEqual(["PUT", "HEAD"]);
});

test("S3Store: an object that was cut in the store is not the part, and cannot be read", async () => {
  const store = storeAt("cut/");
  const part = partOf("part", 1 << 20);
  await store.putFile("parts/a/000000", part, signal);
  truncateSync(server.fileOf("cut/parts/a/000000"), 1000);
  expect(await store.has("parts/a/000000", part, signal)).toBe(false);
  const back = { ...part, path: path.join(work, "back") };
  await expect(store.getFile("parts/a/000000", back, signal)).rejects.toMatchObject({ code: "damaged" });
  await store.putFile("parts/a/000000", part, signal);
  await store.getFile("parts/a/000000", back, signal);
});

test("S3Store: an object that has grown in the store fills no disk", async () => {
  const store = storeAt("grown/");
  const part = partOf("part", 1 << 20);
  await store.putFile("parts/a/000000", part, signal);
  appendFileSync(server.fileOf("grown/parts/a/000000"), Buffer.alloc(32 << 20));
  const back = { ...part, path: path.join(work, "back") };
  await expect(store.getFile("parts/a/000000", back, signal)).rejects.toMatchObject({ code: "damaged" });
  expect(statSync(back.path).size).toBeLessThan(2 << 20);
});

test("S3Store: a list that never ends is given up", async () => {
  const page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
  const endless = createServer((_request, response) => response.end(`${page}</ListBucketResult>`));
  await new Promise<void>((resolve) => endless.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = endless.address() as AddressInfo;
    const store = storeAt("", { endpoint: new URL(`http://127.0.0.1:${port}`) });
    await expect(store.list("", signal)).rejects.toMatchObject({ code: "unavailable" });
  } finally {
    endless.close();
  }
});

test("S3Store: wrong credentials, a missing bucket and a store that is away are told apart", async () => {
  const wrong = storeAt("", { credentials: { ...s3Credentials, secretAccessKey: "another" } });
  await expect(wrong.list("index/", signal)).rejects.toMatchObject({ code: "denied" });
  await expect(wrong.putText("index/a.json", "x", signal)).rejects.toMatchObject({ code: "denied" });
  const missing = storeAt("", { bucket: "missing" });
  await expect(missing.list("index/", signal)).rejects.toMatchObject({ code: "not-found" });
  await expect(missing.putText("index/a.json", "x", signal)).rejects.toMatchObject({ code: "not-found" });
  const away = storeAt("", { endpoint: new URL("http://127.0.0.1:1") });
  await expect(away.list("index/", signal)).rejects.toMatchObject({ code: "unavailable" });
  const gone = AbortSignal.abort(new Error("stopped"));
  await expect(storeAt("").list("index/", gone)).rejects.toThrow("stopped");
});

const uid = takenUid;
const entry = archiveEntry;
const { id } = entry;
const record: SnapshotRecord = {
  version: 1,
  uid,
  namespace: "default",
  name: "of-box",
  state: "ready",
  hasMemory: false,
  images: [{ kind: "volume", from: "own", id: "copy", part: { is: "claim", name: "home" } }],
  runs: {},
  ended: [],
};

/** A node on a fake helper, whose files are on the disk as the real one's are. */
async function openNode(store: S3Store, name: string): Promise<{ archive: NodeArchive; host: FakeHost; uid: string }> {
  const dataDir = path.join(work, name);
  const host = new FakeHost();
  await host.ensureVolume({ id: "copy", sizeBytes: 1 << 20 });
  const { packArchive, unpackArchive } = host;
  host.packArchive = async (request) => {
    const part = await packArchive(request);
    if (request.to !== undefined) await writeFile(path.join(dataDir, request.to), host.blobs.get(request.to) ?? "");
    return part;
  };
  host.unpackArchive = async (request) => {
    if (request.from !== undefined) host.blobs.set(request.from, await readFile(path.join(dataDir, request.from)));
    return unpackArchive(request);
  };
  await mkdir(dataDir, { recursive: true });
  const snapshots = new RecordStore<SnapshotRecord>(path.join(dataDir, "snapshots"));
  await snapshots.save(record);
  const snapshotName = async (): Promise<string> => "of-box";
  const logger = createLogger({ component: "test", level: "fatal" });
  return { archive: new NodeArchive({ host, snapshots, snapshotName, dataDir, logger }, store), host, uid };
}

test("NodeArchive: a store that fails in every request in turn gets each object once, and the entry last", async () => {
  const prefix = "in-turn/";
  const { archive } = await openNode(storeAt(prefix), "in-turn");
  for (const fault of ["error", "lost-answer", "cut-request"] as const)
    for (const method of ["PUT", "HEAD", "GET"]) proxy.faults.set(method, [fault, ...(proxy.faults.get(method) ?? [])]);
  const sizes = await archive.store(entry, uid, signal);
  const puts = proxy.seen.filter((line) => line.startsWith("PUT")).map((line) => line.split("/").slice(3).join("/"));
  expect([...new Set(puts)]).toEqual([`parts/${id}/000000`, `index/${id}.json`]);
  expect(await archive.list(signal)).toEqual([{ ...entry, ...sizes }]);
  proxy.seen.length = 0;
  expect(await archive.store(entry, uid, signal)).toEqual(sizes);
  expect(proxy.seen.filter((line) => line.startsWith("PUT"))).toEqual([]);
});

test("NodeArchive: a part that is in the store is not sent again after a failed attempt, and no entry tells of half an archive", async () => {
  const { archive, host } = await openNode(storeAt("again/"), "again");
  const { sealArchive } = host;
  host.sealArchive = () => Promise.reject(new Error("killed"));
  await expect(archive.store(entry, uid, signal)).rejects.toThrow("killed");
  expect(await archive.list(signal)).toEqual([]);
  host.sealArchive = sealArchive;
  proxy.seen.length = 0;
  await archive.store(entry, uid, signal);
  expect(proxy.seen.filter((line) => line.startsWith("PUT"))).toEqual([`PUT /${bucket}/again/index/${id}.json`]);
});

test("NodeArchive: what comes back is a snapshot under the names of its own uid; removing takes the entry first", async () => {
  const { archive, host } = await openNode(storeAt("back/"), "node-back");
  await archive.store(entry, uid, signal);
  const other = "0f3a9d52-0000-4000-8000-000000000002";
  proxy.faults.set("GET", ["cut-answer", "error"]);
  expect(await archive.fetch(id, other, signal)).toMatchObject(entry);
  expect((await host.listVolumes()).map((volume) => volume.id)).toContainEqual(expect.stringMatching(/^snap-0f3a9d52/));
  proxy.seen.length = 0;
  for (let times = 0; times < 2; times += 1) await archive.remove(id, signal);
  const removed = proxy.seen.filter((line) => line.startsWith("DELETE")).map((line) => line.split("/")[3]);
  expect(removed).toEqual(["index", "parts", "index"]);
  await expect(archive.fetch(id, other, signal)).rejects.toMatchObject({ code: "not-found" });
});

test("NodeArchive: another snapshot under an archive's id is refused, and so is one that is not here", async () => {
  const { archive } = await openNode(storeAt("other/"), "other");
  await expect(archive.store(entry, "none", signal)).rejects.toMatchObject({ code: "not-found" });
  await archive.store(entry, uid, signal);
  await expect(archive.store(entry, "none", signal)).rejects.toMatchObject({ code: "invalid" });
});
