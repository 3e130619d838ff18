import { cp, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  exportArchiveKeys,
  importArchiveKeys,
  listArchive,
  retireArchiveKeys,
  rotateArchiveKey,
} from "../../packages/server/src/main/archive-keys.ts";
import type { ArchiveStore } from "../../packages/server/src/node/archive/archive-store.ts";
import { DirectoryStore } from "../../packages/server/src/node/archive/directory-store.ts";
import { NodeArchive } from "../../packages/server/src/node/archive/node-archive.ts";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { keptLayerKey } from "../../packages/server/src/node/pods/kept-layer.ts";
import { type SnapshotRecord, snapshotSavedId } from "../../packages/server/src/node/pods/snapshot-record.ts";
import { RecordStore } from "../../packages/server/src/node/record-store.ts";
import { createLogger } from "../../packages/server/src/telemetry/logger.ts";
import { archiveEntry, backUid, takenUid } from "../archive/entry.ts";
import { RealHost } from "./real-host.ts";
import { guestOf, SavedBench } from "./saved-bench.ts";
import { guestProcess } from "./saved-guest.ts";

let here: RealHost;
let there: RealHost;
beforeAll(async () => {
  [here, there] = [await RealHost.open(), await RealHost.open()];
});
afterAll(async () => {
  await here[Symbol.asyncDispose]();
  await there[Symbol.asyncDispose]();
});

const { signal } = new AbortController();
const [taken, back] = [takenUid, backUid];
const entry = archiveEntry;
const { id } = entry;

const recordOf = (uid: string): SnapshotRecord => ({
  version: 1,
  uid,
  namespace: "default",
  name: "of-box",
  state: "ready",
  hasMemory: true,
  images: [{ kind: "writable", from: "kept", id: keptLayerKey(uid, "main"), part: { is: "layer", container: "main" } }],
  runs: { main: { hostId: "a0", attempt: 0 } },
  ended: [],
});

interface Node {
  readonly archive: NodeArchive;
  readonly snapshots: RecordStore<SnapshotRecord>;
}

/** The archive of a node, as its agent has it. */
function nodeOf(real: RealHost, store: ArchiveStore, host: Host = real.host): Node {
  const snapshots = new RecordStore<SnapshotRecord>(path.join(real.nodeDir, "snapshots"));
  const snapshotName = async (): Promise<string> => "of-box";
  const logger = createLogger({ component: "test", level: "error" });
  return {
    archive: new NodeArchive({ host, snapshots, snapshotName, dataDir: real.nodeDir, logger }, store),
    snapshots,
  };
}

/** A helper that is killed in the first of each kind of verb that was not met before, and started again. */
function killedOnce(real: RealHost, met: Set<string>): Host {
  return new Proxy(real.host, {
    get: (target, verb: keyof Host) => {
      const run = target[verb] as (request: { part?: number; to?: string; from?: string }) => Promise<unknown>;
      return async (request: { part?: number; to?: string; from?: string }) => {
        const kind = `${verb} ${request.part} ${request.to ?? request.from}`;
        const answer = run.call(target, request);
        if (met.has(kind)) return answer;
        met.add(kind);
        const settled = Promise.allSettled([answer]);
        await new Promise((resolve) => setTimeout(resolve, 30));
        await real.kill();
        await settled;
        await real.start();
        throw new Error("the agent ended with its helper");
      };
    },
  });
}

/** Repeats what an agent does until no kill meets it any more; resolves with the verbs in which it was killed. */
async function throughKills(real: RealHost, act: (host: Host) => Promise<unknown>): Promise<readonly string[]> {
  const met = new Set<string>();
  for (;;) {
    const isDone = await act(killedOnce(real, met)).then(
      () => true,
      (error: Error) => {
        if (error.message !== "the agent ended with its helper") throw error;
        return false;
      },
    );
    if (isDone) return [...met].map((kind) => kind.split(" ")[0] ?? "").sort();
  }
}

test("archive: memory and files come back on a machine that has nothing but the store and the key, whatever verb the helper is killed in", async () => {
  const store = new DirectoryStore(path.join(here.work, "archive"));
  const bench = new SavedBench(here);
  const before = await bench.start("a0", 150);
  await bench.answer("write first,");
  await here.host.saveSandbox({ id: "a0", saved: snapshotSavedId(taken), reusable: true });
  const layer = keptLayerKey(taken, "main");
  await here.host.cloneImage({ kind: "writable", from: "kept", to: layer, pauseMaxMs: 10_000 });
  await here.host.continueSandbox({ id: "a0" });
  await bench.answer("write later,");
  await bench.removePod("a0");

  const kills = await throughKills(here, async (host) => {
    const { archive, snapshots } = nodeOf(here, store, host);
    await snapshots.save(recordOf(taken));
    return archive.store(entry, taken, signal);
  });
  const packs = ["packArchive", "packArchive", "packArchive", "packArchive"];
  expect(kills).toEqual(["forgetArchive", "openArchive", ...packs, "sealArchive"]);
  const { archive, snapshots } = nodeOf(here, store);
  await snapshots.save(recordOf(taken));
  const sizes = await archive.store(entry, taken, signal);
  expect(sizes.contentBytes).toBeGreaterThan(150 << 20);
  expect(sizes.storedBytes).toBeLessThan(sizes.contentBytes);
  expect(await store.list("")).toEqual([`index/${id}.json`, `parts/${id}/000000`, `parts/${id}/000001`]);
  expect(await archive.list(signal)).toEqual([{ ...entry, ...sizes }]);
  expect(await readdir(path.join(here.nodeDir, "archive"))).toEqual([]);

  const elsewhere = nodeOf(there, store);
  expect(await elsewhere.archive.list(signal)).toEqual([]);
  await expect(elsewhere.archive.fetch(id, back, signal)).rejects.toMatchObject({ code: "not-found" });
  await cp(path.join(here.hostDir, "archive/keys.json"), path.join(there.hostDir, "archive/keys.json"));
  const part = path.join(here.work, "archive/parts", id, "000001");
  const whole = await readFile(part);
  await writeFile(part, whole.subarray(0, -1));
  await expect(elsewhere.archive.fetch(id, back, signal)).rejects.toMatchObject({ code: "damaged" });
  expect(await there.host.listSaved()).toEqual([]);
  await writeFile(part, whole);
  await there.host.forgetArchive({ id });
  const fetches = await throughKills(there, (host) => nodeOf(there, store, host).archive.fetch(id, back, signal));
  expect(fetches).toEqual(["openArchive", "unpackArchive", "unpackArchive", "unpackArchive"]);
  const fetched = nodeOf(there, store);
  expect(await fetched.archive.fetch(id, back, signal)).toEqual({ ...entry, ...sizes });
  expect(fetched.snapshots.get(back)).toEqual(recordOf(back));

  const beyond = new SavedBench(there);
  await beyond.prepareNetwork();
  const clone = { kind: "writable" as const, from: keptLayerKey(back, "main"), to: "kept", pauseMaxMs: 10_000 };
  await there.host.cloneImage(clone);
  await beyond.prepareRoot("b0", "kept");
  const restoreFrom = { saved: snapshotSavedId(back), container: "a0" };
  await there.host.runContainer(guestOf("b0", { process: guestProcess(150), restoreFrom }));
  expect(await there.host.waitRestored({ id: "b0", waitMs: 20_000 })).toBe("restored");
  const report = await beyond.answer("write there,");
  expect(report).toMatchObject({ drawn: before.drawn, pid: before.pid, deleted: "still here", disk: "first,there," });

  await fetched.archive.remove(id, signal);
  await fetched.archive.remove(id, signal);
  expect(await store.list("")).toEqual([]);
  for (const real of [here, there]) {
    expect(await readdir(path.join(real.hostDir, "archive/packing"))).toEqual([]);
    expect(await readdir(path.join(real.hostDir, "archive/unpacking"))).toEqual([]);
  }
});

test("archive keys: rotation wraps every entry anew and nothing else, and a key goes only when no entry needs it", async () => {
  const directory = path.join(there.work, "rotated");
  const store = new DirectoryStore(directory);
  const record: SnapshotRecord = {
    ...recordOf(taken),
    hasMemory: false,
    images: [{ kind: "volume", from: "own", id: "still", part: { is: "claim", name: "home" } }],
  };
  await there.host.ensureVolume({ id: "own", sizeBytes: 16 << 20 });
  await there.host.cloneImage({ kind: "volume", from: "own", to: "still", pauseMaxMs: 10_000 });
  const { archive, snapshots } = nodeOf(there, store);
  await snapshots.save(record);
  const sizes = await archive.store(entry, taken, signal);
  const part = await readFile(path.join(directory, "parts", id, "000000"));
  const access = { dataDir: there.dataDir, flags: { archive: directory }, signal };
  const exported = await exportArchiveKeys(there.dataDir);
  const rotated = await rotateArchiveKey(access);
  expect(rotated).toMatchObject({ rewrapped: 1, unread: [] });
  expect(await readFile(path.join(directory, "parts", id, "000000"))).toEqual(part);
  expect(await archive.list(signal)).toEqual([{ ...entry, ...sizes, storedBytes: expect.any(Number) }]);
  expect(await rotateArchiveKey(access)).toMatchObject({ rewrapped: 1, keys: [...rotated.keys, expect.any(String)] });
  expect((await retireArchiveKeys(access)).keys).toHaveLength(2);
  expect(await listArchive(access)).toMatchObject([{ id, entry: { ...entry, contentBytes: sizes.contentBytes } }]);
  expect((await importArchiveKeys(there.dataDir, exported)).keys).toHaveLength(3);
  expect(await archive.fetch(id, back, signal)).toMatchObject(entry);
  await archive.remove(id, signal);
});
