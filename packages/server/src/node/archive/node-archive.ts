import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { sandboxSnapshots } from "@agent-sandbox/api";
import type { Logger } from "../../telemetry/logger.ts";
import { partHostId } from "../container-id.ts";
import type { ArchiveFile, ArchivePart, OpenedArchive } from "../host/archive.ts";
import type { Host } from "../host/host.ts";
import { HostError, type HostErrorCode } from "../host/host-error.ts";
import { keptLayerKey } from "../pods/kept-layer.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { type SnapshotImage, type SnapshotRecord, snapshotSavedId, snapshotVolumeId } from "../pods/snapshot-record.ts";
import type { RecordStore } from "../record-store.ts";
import { ArchiveError } from "./archive-error.ts";
import type { ArchiveStore } from "./archive-store.ts";
import type { ArchiveEntry, ArchiveWork } from "./archive-work.ts";

/** What a node gives to its archive. */
export interface ArchiveNode {
  readonly host: Host;
  readonly snapshots: RecordStore<SnapshotRecord>;
  /** The name of the SandboxSnapshot with a uid; undefined: there is none in that namespace. */
  readonly snapshotName: (namespace: string, uid: string, signal: AbortSignal) => Promise<string | undefined>;
  /** The node's directory, below which the helper reads and writes what the node names. */
  readonly dataDir: string;
  readonly logger: Logger;
}

/** The archive of a node in a store. */
export function openNodeArchive(context: PodContext, store: ArchiveStore): ArchiveWork {
  const { client, host, snapshots, config, logger } = context;
  const snapshotName: ArchiveNode["snapshotName"] = async (namespace, uid, signal) => {
    const { items } = await client.list(sandboxSnapshots, { namespace, signal });
    return items.find(({ metadata }) => metadata.uid === uid)?.metadata.name;
  };
  return new NodeArchive({ host, snapshots, snapshotName, dataDir: config.dataDir, logger }, store);
}

/** What the helper says of an entry that it has no key for, that is damaged, or that is none. */
const unreadable: readonly string[] = ["not-found", "digest-mismatch", "invalid-argument"] satisfies HostErrorCode[];

/** Entries that are read at once: each is one request to the store. */
const readersMax = 8;

/** Where parts wait, below the node's directory; a part is there only while it is on its way. */
const stagingName = "archive";

type Unsized = Omit<ArchiveEntry, "storedBytes" | "contentBytes">;

/** What the helper seals for us: the entry, and the record of the snapshot whose files the parts have. */
interface Sealed {
  readonly version: 1;
  readonly entry: Unsized;
  readonly record: SnapshotRecord;
}

/** Archives of this node's snapshots in a store. The helper has the keys; what is here is encrypted. Preconditions: no two calls at once for one archive. Exported for tests. */
export class NodeArchive implements ArchiveWork {
  readonly #node: ArchiveNode;
  readonly #store: ArchiveStore;
  #staging: Promise<void> | undefined;

  constructor(node: ArchiveNode, store: ArchiveStore) {
    this.#node = node;
    this.#store = store;
  }

  async store(entry: Unsized, snapshotUID: string, signal: AbortSignal): Promise<Sizes> {
    const { host, snapshots } = this.#node;
    const { id } = entry;
    const before = await this.#store.getText(indexName(id), signal);
    if (before !== undefined) {
      const { opened, sealed } = await this.#open(id, before, signal);
      if (sealed.record.uid !== snapshotUID)
        throw new ArchiveError("invalid", `archive ${id} has another snapshot than ${snapshotUID}`);
      await host.forgetArchive({ id }, signal);
      return sizesOf(opened.parts, before);
    }
    const record = snapshots.get(snapshotUID);
    if (record?.state !== "ready")
      throw new ArchiveError("not-found", `the files of snapshot ${snapshotUID} are not on this node`);
    const parts = await this.#storeParts(id, filesOf(record), signal);
    const said: Sealed = { version: 1, entry, record };
    const { sealed } = await host.sealArchive({ id, entry: said }, signal);
    await this.#store.putText(indexName(id), sealed, signal);
    if ((await this.#store.getText(indexName(id), signal)) !== sealed)
      throw new ArchiveError("unavailable", `the store has another entry of archive ${id} than it was given`);
    await host.forgetArchive({ id }, signal);
    return sizesOf(parts, sealed);
  }

  async fetch(id: string, snapshotUID: string, signal: AbortSignal): Promise<ArchiveEntry> {
    const { snapshots, snapshotName } = this.#node;
    const text = await this.#store.getText(indexName(id), signal);
    if (text === undefined) throw new ArchiveError("not-found", `there is no archive ${id}`);
    const { opened, sealed } = await this.#open(id, text, signal);
    const entry = { ...sealed.entry, ...sizesOf(opened.parts, text) };
    if (snapshots.get(snapshotUID)?.state === "ready") return entry;
    const name = await snapshotName(entry.namespace, snapshotUID, signal);
    if (name === undefined) throw new ArchiveError("not-found", `there is no SandboxSnapshot with uid ${snapshotUID}`);
    const record = recordFor(sealed.record, { uid: snapshotUID, namespace: entry.namespace, name });
    // Before the first file is there: an agent that is killed finds it and removes what it has.
    await snapshots.save({ ...record, state: "saving" });
    await this.#unpack({ id, sealed: text, files: filesOf(record) }, opened.parts, signal);
    await snapshots.save({ ...record, state: "ready" });
    return entry;
  }

  async list(signal: AbortSignal): Promise<readonly ArchiveEntry[]> {
    const names = await this.#store.list("index/", signal);
    const found: ArchiveEntry[] = [];
    for (let start = 0; start < names.length; start += readersMax) {
      const some = names.slice(start, start + readersMax).map((name) => this.#readEntry(name, signal));
      found.push(...(await Promise.all(some)).filter((entry) => entry !== undefined));
    }
    return found;
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#store.remove(indexName(id), signal);
    for (const name of await this.#store.list(`parts/${id}/`, signal)) await this.#store.remove(name, signal);
    await this.#node.host.forgetArchive({ id }, signal);
  }

  /** One entry that cannot be read does not hide the others; it is removed by nobody. */
  async #readEntry(name: string, signal: AbortSignal): Promise<ArchiveEntry | undefined> {
    const id = /^index\/([a-z0-9-]+)\.json$/.exec(name)?.[1];
    const text = id === undefined ? undefined : await this.#store.getText(name, signal);
    if (id === undefined || text === undefined) return undefined;
    try {
      const { opened, sealed } = await this.#open(id, text, signal);
      return { ...sealed.entry, ...sizesOf(opened.parts, text) };
    } catch (error) {
      if (!(error instanceof HostError && unreadable.includes(error.code))) throw error;
      this.#node.logger.warn({ err: error, archive: id }, "the entry of an archive cannot be read");
      return undefined;
    }
  }

  async #open(id: string, text: string, signal: AbortSignal): Promise<{ opened: OpenedArchive; sealed: Sealed }> {
    const opened = await this.#node.host.openArchive({ id, sealed: text }, signal);
    return { opened, sealed: asSealed(id, opened.entry) };
  }

  /** What the store has already is not packed again, and nothing is sent twice. */
  async #storeParts(id: string, files: readonly ArchiveFile[], signal: AbortSignal): Promise<readonly ArchivePart[]> {
    const { host } = this.#node;
    const parts: ArchivePart[] = [];
    while (parts.at(-1)?.last !== true) {
      const part = parts.length;
      const packed = await host.packArchive({ id, files, part }, signal);
      const isStored = packed !== undefined && (await this.#store.has(partName(id, part), packed, signal));
      parts.push(isStored ? packed : await this.#storePart({ id, files, part }, signal));
    }
    return parts;
  }

  async #storePart(
    request: { readonly id: string; readonly files: readonly ArchiveFile[]; readonly part: number },
    signal: AbortSignal,
  ): Promise<ArchivePart> {
    const { id, part } = request;
    await using staged = await this.#stage(id);
    const packed = await this.#node.host.packArchive({ ...request, to: staged.name }, signal);
    if (packed === undefined) throw new ArchiveError("unavailable", `part ${part} of archive ${id} was not packed`);
    await this.#store.putFile(partName(id, part), { ...packed, path: staged.path }, signal);
    return packed;
  }

  async #unpack(
    archive: { readonly id: string; readonly sealed: string; readonly files: readonly ArchiveFile[] },
    parts: readonly ArchivePart[],
    signal: AbortSignal,
  ): Promise<void> {
    const { host } = this.#node;
    let progress = await host.unpackArchive({ ...archive, part: 0 }, signal);
    while (progress.done !== true) {
      const { part } = progress;
      const expected = parts[part];
      if (expected === undefined) throw new ArchiveError("damaged", `archive ${archive.id} has no part ${part}`);
      await using staged = await this.#stage(archive.id);
      await this.#store.getFile(partName(archive.id, part), { ...expected, path: staged.path }, signal);
      progress = await host.unpackArchive({ ...archive, part, from: staged.name }, signal);
    }
  }

  /** A place for one part. What an earlier agent left there goes before the first. */
  async #stage(id: string): Promise<AsyncDisposable & { readonly name: string; readonly path: string }> {
    const directory = path.join(this.#node.dataDir, stagingName);
    this.#staging ??= rm(directory, { recursive: true, force: true }).then(async () => {
      await mkdir(directory, { mode: 0o700 });
    });
    await this.#staging;
    const file = path.join(directory, id);
    return {
      name: `${stagingName}/${id}`,
      path: file,
      [Symbol.asyncDispose]: () => rm(file, { force: true }),
    };
  }
}

type Sizes = Pick<ArchiveEntry, "storedBytes" | "contentBytes">;

function sizesOf(parts: readonly ArchivePart[], entry: string): Sizes {
  return {
    storedBytes: parts.reduce((sum, { sizeBytes }) => sum + sizeBytes, Buffer.byteLength(entry)),
    contentBytes: parts.reduce((sum, { contentBytes }) => sum + contentBytes, 0),
  };
}

function indexName(id: string): string {
  return `index/${id}.json`;
}

function partName(id: string, part: number): string {
  return `parts/${id}/${String(part).padStart(6, "0")}`;
}

/** The memory first, then the images in the record's order, here and where they are unpacked. */
function filesOf({ uid, hasMemory, images }: SnapshotRecord): readonly ArchiveFile[] {
  const memory: ArchiveFile[] = hasMemory ? [{ kind: "saved", id: snapshotSavedId(uid) }] : [];
  return [...memory, ...images.map(({ kind, id }) => ({ kind, id }))];
}

/** The record of the same files as another snapshot. */
function recordFor(
  record: SnapshotRecord,
  { uid, namespace, name }: Pick<SnapshotRecord, "uid" | "namespace" | "name">,
): SnapshotRecord {
  const images = record.images.map((image) => ({ ...image, id: imageIdOf(uid, image.part) }));
  return { ...record, uid, namespace, name, images };
}

function imageIdOf(uid: string, part: SnapshotImage["part"]): string {
  switch (part.is) {
    case "layer":
      return keptLayerKey(uid, part.container);
    case "state":
      return partHostId(uid, "node", "state");
    case "volume":
      return partHostId(uid, "volume", part.name);
    case "claim":
      return snapshotVolumeId(uid, part.name);
    default:
      return part satisfies never;
  }
}

/** The helper has authenticated it, so that it is what a node sealed, perhaps one of another version. */
function asSealed(id: string, value: unknown): Sealed {
  const sealed = value as Sealed | null;
  if (sealed?.version !== 1)
    throw new ArchiveError("damaged", `archive ${id} was written by another version of the engine`);
  return sealed;
}
