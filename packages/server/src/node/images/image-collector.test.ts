import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { afterEach, expect, test } from "vitest";
import { RecordShelf } from "../../durable/record-shelf.ts";
import { silentLogger } from "../../telemetry/logger.ts";
import { FakeHost } from "../host/fake-host.ts";
import type { HostInfo } from "../host/host.ts";
import { collectImages } from "./image-collector.ts";
import { type StoredImage, storedReference } from "./image-index.ts";
import { ImageStore } from "./image-store.ts";
import { type CollectionQuestion, collectionDefaults, planCollection } from "./plan-collection.ts";

const minute = 60_000;
const nowMs = Date.parse("2026-01-01T01:00:00Z");

function image(name: string, more: Partial<StoredImage> = {}): StoredImage {
  return {
    name,
    manifestDigest: `sha256:m${name}`,
    configDigest: `sha256:c${name}`,
    layers: [],
    sizeBytes: 1,
    isLoaded: false,
    storedAt: "2026-01-01T00:00:00Z",
    lastUsedAt: "2026-01-01T00:00:00Z",
    ...more,
  };
}

const usedAt = (agoMs: number): Pick<StoredImage, "lastUsedAt"> => ({
  lastUsedAt: new Date(nowMs - agoMs).toISOString(),
});

const full: CollectionQuestion = {
  images: [image("young", usedAt(5 * minute)), image("old", usedAt(9 * minute))],
  used: new Set(),
  diskBytes: 100,
  diskFreeBytes: 10,
  isCollecting: false,
  nowMs,
  limits: collectionDefaults,
};

test.each<[string, Partial<CollectionQuestion>, string | undefined]>([
  ["a full disk takes what was unused for longest", {}, "old"],
  ["below the high mark nothing goes", { diskFreeBytes: 16 }, undefined],
  ["a collection goes on to the low mark", { diskFreeBytes: 16, isCollecting: true }, "old"],
  ["and ends there", { diskFreeBytes: 21, isCollecting: true }, undefined],
  ["an image in use stays", { used: new Set(["old@sha256:mold"]) }, "young"],
  ["a loaded image stays", { images: [image("archive", { isLoaded: true })] }, undefined],
  ["the marks are the operator's", { limits: { highPercent: 91, lowPercent: 89, ageMinMs: 0 } }, undefined],
  ["an image used a minute ago stays", { images: [image("fresh", usedAt(minute))] }, undefined],
])("planCollection: %s", (_title, change, expected) => {
  expect(planCollection({ ...full, ...change })?.name).toBe(expected);
});

const cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0)) await clean();
});

async function newStore(): Promise<ImageStore> {
  const dataDir = await mkdtemp(join(tmpdir(), "collector-"));
  cleanups.push(() => rm(dataDir, { recursive: true, force: true }));
  const store = new ImageStore({ dataDir, host: new FakeHost(), clock: systemClock });
  await store.load(new RecordShelf(dataDir, () => {}));
  return store;
}

/** An image without layers, whose blobs are its manifest and its configuration. */
async function addImage(store: ImageStore, name: string): Promise<StoredImage> {
  const config = Buffer.from(JSON.stringify({ os: "linux", rootfs: { type: "layers", diff_ids: [] }, author: name }));
  const digest = await store.blobs.put(config);
  const manifest = { config: { digest, size: config.length }, layers: [] };
  const manifestDigest = await store.blobs.put(Buffer.from(JSON.stringify(manifest)));
  return store.add({ name, manifestDigest, manifest, isLoaded: false });
}

/** A disk that has room again once only `left` images are there. */
function diskWith(store: ImageStore, left: number): { info: () => Promise<HostInfo> } {
  const host = new FakeHost();
  return {
    info: async () => ({
      ...(await host.info()),
      diskBytes: 100,
      diskFreeBytes: store.list().length > left ? 1 : 50,
    }),
  };
}

const later = { ...systemClock, nowMs: () => systemClock.nowMs() + 10 * minute };

test("collectImages: removes until there is room, and never what runs", async () => {
  const store = await newStore();
  const running = await addImage(store, "r.test/running:1");
  for (const name of ["a", "b", "c"]) await addImage(store, `r.test/${name}:1`);
  const removed = await collectImages({
    store,
    host: diskWith(store, 2),
    clock: later,
    logger: silentLogger(),
    used: () => new Set([storedReference(running)]),
    limits: collectionDefaults,
    signal: new AbortController().signal,
  });
  expect(removed).toHaveLength(2);
  expect(store.find("r.test/running:1")).toBeDefined();
  expect(await store.blobs.has(running.configDigest)).toBe(true);
});

test("ImageStore: what a pull under way has fetched is no garbage until it fails", async () => {
  const store = await newStore();
  const digest = await store.blobs.put(Buffer.from("a layer of an image that has no name yet"));
  {
    using lease = store.leases.open();
    lease.add(digest);
    await store.collectGarbage(new AbortController().signal);
    expect(await store.blobs.has(digest)).toBe(true);
  }
  await store.collectGarbage(new AbortController().signal);
  expect(await store.blobs.has(digest)).toBe(false);
});
