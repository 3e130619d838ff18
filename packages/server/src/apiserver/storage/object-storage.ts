import { ApiError, expired, internalError, type KubeObject, serviceUnavailable } from "@agent-sandbox/api";
import type { Row, Store } from "../../store/store.ts";
import { StoreError } from "../../store/store-error.ts";
import type { ResourceDefinition, VersionDefinition } from "../registry/resource-definition.ts";
import { isStoredVersion, type ObjectCodec } from "./object-codec.ts";
import { type ObjectName, objectKey } from "./object-key.ts";

/** A row together with its decoded form, made when first asked for. */
export interface StoredObject {
  readonly row: Row;
  /** In the storage version; shared, never changed. */
  readonly object: KubeObject;
}

/** Called with every write before it is answered; used by registries that must never be stale. */
export type WriteListener = (definition: ResourceDefinition, row: Row) => void;

/** Objects of any kind over the revisioned log. */
export class ObjectStorage {
  readonly store: Store;
  readonly codec: ObjectCodec;
  readonly #decoded = new DecodedCache();
  readonly #listeners = new Set<WriteListener>();

  constructor({ store, codec }: { store: Store; codec: ObjectCodec }) {
    this.store = store;
    this.codec = codec;
  }

  /** Calls `listener` after each durable write and before the writer is answered. */
  onWrite(listener: WriteListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /** The newest state of an object, or undefined. */
  get(definition: ResourceDefinition, name: ObjectName): StoredObject | undefined {
    const row = this.store.get(objectKey(definition, name));
    return row === undefined ? undefined : { row, object: this.read(definition, row) };
  }

  /** The row alone, for answers that need no parsing. */
  getRow(definition: ResourceDefinition, name: ObjectName): Row | undefined {
    return this.store.get(objectKey(definition, name));
  }

  /** The decoded object of a row; shared, never to be changed. */
  read(definition: ResourceDefinition, row: Row): KubeObject {
    const known = this.#decoded.get(row);
    if (known !== undefined) return known;
    const object = this.codec.decode(definition, row);
    this.#decoded.set(row, object);
    return object;
  }

  /** The row's object in a version, as wire bytes. */
  async render(definition: ResourceDefinition, version: VersionDefinition, row: Row): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    await this.renderInto({ definition, version, row }, chunks);
    return Buffer.concat(chunks);
  }

  /** Like `render`, without joining the parts. */
  async renderInto(source: RenderSource, chunks: Uint8Array[]): Promise<void> {
    const { definition, version, row } = source;
    if (isStoredVersion(definition, version)) return this.codec.pushStored(definition, row, chunks);
    const object = await this.codec.convert(definition, this.read(definition, row), version.name);
    chunks.push(Buffer.from(JSON.stringify(object)));
  }

  /** The row's object in a version, for code that looks inside; shared, never to be changed. */
  async readAs(definition: ResourceDefinition, version: VersionDefinition, row: Row): Promise<KubeObject> {
    return this.codec.convert(definition, this.read(definition, row), version.name);
  }

  /** Writes an object in any of its versions; throws the store's conflict unchanged. */
  async write(definition: ResourceDefinition, write: ObjectWrite): Promise<Row> {
    const stored = await this.codec.toStorage(definition, write.object);
    const key = objectKey(definition, { namespace: stored.metadata.namespace, name: stored.metadata.name ?? "" });
    const value = write.bytes ?? this.codec.encode(definition, stored, key);
    const ttlMs = definition.strategy.timeToLiveMs;
    const row = await this.store.append({
      key,
      value,
      expectedRevision: write.expectedRevision,
      ...(write.remove === true ? { delete: true } : {}),
      ...(ttlMs === undefined || write.remove === true ? {} : { ttlMs }),
    });
    // What was just written is likely read next; a stored object is never changed in place.
    const metadata = { ...stored.metadata, resourceVersion: String(row.revision) };
    this.#decoded.set(row, { ...stored, metadata });
    for (const listener of this.#listeners) listener(definition, row);
    return row;
  }
}

/** A change of one object; `remove` writes its last state as a tombstone. */
export interface ObjectWrite {
  readonly object: KubeObject;
  readonly expectedRevision: number;
  readonly remove?: boolean;
  /** The object as it is stored already, where it does not change. */
  readonly bytes?: Uint8Array;
}

/** What to render. */
export interface RenderSource {
  readonly definition: ResourceDefinition;
  readonly version: VersionDefinition;
  readonly row: Row;
}

/** True for the store's answer that another write came first. */
export function isStoreConflict(error: unknown): error is StoreError {
  return error instanceof StoreError && error.code === "conflict";
}

/** The wire error for a store failure other than a conflict. */
export function storeFailure(error: StoreError): ApiError {
  switch (error.code) {
    case "compacted":
    case "overflow":
      return expired(`too old resource version: ${error.message}`);
    case "future-revision":
      return new ApiError("Timeout", `Too large resource version: ${error.message}`, {
        details: {
          causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }],
          retryAfterSeconds: 1,
        },
      });
    case "closed":
      return serviceUnavailable("the server is shutting down", 1);
    case "full":
      return new ApiError("InternalError", `the store cannot grow: ${error.message}`, { status: 507, cause: error });
    default:
      return internalError(error.message, error);
  }
}

/** Decoded objects of the rows used last. Bound: 512 entries, about 3 MB; the oldest half goes when it is full. */
class DecodedCache {
  static readonly #entriesMax = 512;
  #young = new Map<Row, KubeObject>();
  #old = new Map<Row, KubeObject>();

  get(row: Row): KubeObject | undefined {
    const young = this.#young.get(row);
    if (young !== undefined) return young;
    const old = this.#old.get(row);
    if (old !== undefined) this.set(row, old);
    return old;
  }

  set(row: Row, object: KubeObject): void {
    if (this.#young.size >= DecodedCache.#entriesMax / 2) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(row, object);
  }
}
