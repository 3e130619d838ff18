import { apiVersionOf, type KubeObject } from "@agent-sandbox/api";
import type { Row } from "../../store/store.ts";
import { findVersion, type ResourceDefinition, type VersionDefinition } from "../registry/resource-definition.ts";
import type { SecretBox } from "./secret-box.ts";

/**
 * Turns objects into stored bytes and back.
 *
 * Invariant: stored bytes start with apiVersion, kind and metadata in this order and carry no resourceVersion, so that
 * an answer is the stored bytes with the row's revision spliced in, without parsing.
 */
export class ObjectCodec {
  readonly #secretBox: SecretBox | undefined;
  readonly #sealed: ReadonlySet<string>;
  /** Bounded by what is alive: rows are shared and collected with the store's window. */
  readonly #opened = new WeakMap<Row, Uint8Array>();

  constructor({ secretBox, sealed = ["secrets"] }: { secretBox?: SecretBox | undefined; sealed?: readonly string[] }) {
    this.#secretBox = secretBox;
    this.#sealed = new Set(sealed);
  }

  /** The bytes to store. Precondition: the object is in the kind's storage version. */
  encode(definition: ResourceDefinition, object: KubeObject, key: string): Uint8Array {
    const { apiVersion, kind, metadata, ...rest } = object;
    const { resourceVersion: _revision, selfLink: _link, ...meta } = metadata;
    const bytes = textEncoder.encode(JSON.stringify({ apiVersion, kind, metadata: meta, ...rest }));
    if (this.#secretBox === undefined || !this.#isSealed(definition)) return bytes;
    return this.#secretBox.encrypt(bytes, key);
  }

  /** The object as stored, with its resourceVersion; a fresh copy that the caller may change. */
  decode(definition: ResourceDefinition, row: Row): KubeObject {
    const object = JSON.parse(textDecoder.decode(this.#plain(definition, row))) as KubeObject;
    object.metadata.resourceVersion = String(row.revision);
    return object;
  }

  /** Pushes the object's wire bytes in its storage version without parsing it. */
  pushStored(definition: ResourceDefinition, row: Row, chunks: Uint8Array[]): void {
    const bytes = this.#plain(definition, row);
    const at = metadataOffset(bytes);
    const separator = bytes[at] === 0x7d ? "" : ",";
    chunks.push(
      bytes.subarray(0, at),
      Buffer.from(`"resourceVersion":"${row.revision}"${separator}`, "latin1"),
      bytes.subarray(at),
    );
  }

  /** The stored object in the version asked for. */
  async convert(definition: ResourceDefinition, object: KubeObject, version: string): Promise<KubeObject> {
    const apiVersion = apiVersionOf({ group: definition.group, version });
    if (object.apiVersion === apiVersion && object.kind === definition.kind) return object;
    if (definition.convert !== undefined) return definition.convert(object, version);
    return { ...object, apiVersion, kind: definition.kind };
  }

  /** The object as it is stored; events of both groups are stored as core events. */
  async toStorage(definition: ResourceDefinition, object: KubeObject): Promise<KubeObject> {
    if (definition.storedAs !== undefined && definition.convert !== undefined) {
      return definition.convert(object, definition.storageVersion);
    }
    return this.convert(definition, object, definition.storageVersion);
  }

  #plain(definition: ResourceDefinition, row: Row): Uint8Array {
    if (this.#secretBox === undefined || !this.#isSealed(definition)) return row.value;
    const known = this.#opened.get(row);
    if (known !== undefined) return known;
    const plain = this.#secretBox.decrypt(row.value, row.key);
    this.#opened.set(row, plain);
    return plain;
  }

  #isSealed({ group, resource }: ResourceDefinition): boolean {
    return group === "" && this.#sealed.has(resource);
  }
}

/** Whether rows of this kind can be answered in this version without parsing. */
export function isStoredVersion(definition: ResourceDefinition, version: VersionDefinition): boolean {
  return (
    definition.storedAs === undefined &&
    version.name === definition.storageVersion &&
    findVersion(definition, version.name) !== undefined
  );
}

const textDecoder = new TextDecoder();
/** Unlike a small `Buffer`, what it makes has memory of its own, which the store would have to copy it into. */
const textEncoder = new TextEncoder();
const metadataStart = Buffer.from('"metadata":{');

/** Offset of the first byte after the opening brace of metadata; by the invariant it is the first such text. */
function metadataOffset(bytes: Uint8Array): number {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).indexOf(metadataStart) + metadataStart.length;
}
