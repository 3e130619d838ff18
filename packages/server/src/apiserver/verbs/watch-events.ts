import { apiVersionOf, asJson, asObject, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import type { Row, StoreEvent } from "../../store/store.ts";
import type { ObjectMatcher } from "../registry/selectors.ts";
import type { RequestScope } from "../scope/scope.ts";
import { isStoredVersion } from "../storage/object-codec.ts";
import { partialMetadata } from "../table/partial-metadata.ts";
import { tableOfEvent } from "./table.ts";

/** The types of watch events that carry an object. */
export type EventType = "ADDED" | "MODIFIED" | "DELETED";

/** One event to send: a type and the row whose object it shows. */
export interface RowEvent {
  readonly type: EventType;
  readonly row: Row;
}

/** What a change means to a watcher with this selector; undefined when it means nothing. */
export function rowEventOf(
  scope: RequestScope,
  event: StoreEvent,
  matches: ObjectMatcher | undefined,
): RowEvent | undefined {
  const { row, previous } = event;
  if (matches === undefined) {
    if (row.deleted) return { type: "DELETED", row };
    return { type: row.createRevision === row.revision ? "ADDED" : "MODIFIED", row };
  }
  const isMatch = (candidate: Row): boolean => matches(scope.server.storage.read(scope.definition, candidate));
  const before = previous !== undefined && !previous.deleted && isMatch(previous);
  const after = isMatch(row);
  if (row.deleted) return before || after ? { type: "DELETED", row } : undefined;
  if (after) return { type: before ? "MODIFIED" : "ADDED", row };
  // The watcher sees the last state it may see, at the revision of the change that took it away.
  return before ? { type: "DELETED", row: { ...previous, revision: row.revision } } : undefined;
}

/** Writes events in the shape a watcher asked for. Plain events are encoded once for all watchers. */
export class EventEncoder {
  readonly #scope: RequestScope;
  #isFirst = true;

  constructor(scope: RequestScope) {
    this.#scope = scope;
  }

  /** The bytes of one event, newline included. */
  async encode(event: RowEvent): Promise<Uint8Array> {
    const { format, definition, version } = this.#scope;
    if (format.as !== undefined) return this.#encodeShape(event);
    const cacheKey = `${event.type}/${version.name}`;
    const cached = encodedEvents.get(event.row, cacheKey);
    if (cached !== undefined) return cached;
    const chunks: Uint8Array[] = [Buffer.from(`{"type":"${event.type}","object":`)];
    await this.#scope.server.storage.renderInto({ definition, version, row: event.row }, chunks);
    chunks.push(eventEnd);
    const bytes = Buffer.concat(chunks);
    if (isStoredVersion(definition, version)) encodedEvents.set(event.row, cacheKey, bytes);
    return bytes;
  }

  async #encodeShape({ type, row }: RowEvent): Promise<Uint8Array> {
    const object = await this.#scope.server.storage.readAs(this.#scope.definition, this.#scope.version, row);
    return line({ type, object: this.#shape(object) });
  }

  #shape(object: KubeObject): JsonObject {
    if (this.#scope.format.as !== "Table") return asJson(partialMetadata(object));
    const table = tableOfEvent(this.#scope, object, this.#isFirst);
    this.#isFirst = false;
    return table;
  }

  /** A bookmark: everything up to the revision has been sent. */
  bookmark(revision: number, annotations?: Record<string, string>): Uint8Array {
    const { definition, version, format } = this.#scope;
    const metadata = { resourceVersion: String(revision), ...(annotations === undefined ? {} : { annotations }) };
    const apiVersion = apiVersionOf({ group: definition.group, version: version.name });
    const object = asObject({ kind: definition.kind, apiVersion, metadata });
    if (format.as === "Table") return line({ type: "BOOKMARK", object: this.#bookmarkTable(object) });
    return line({ type: "BOOKMARK", object: asJson(format.as === undefined ? object : partialMetadata(object)) });
  }

  #bookmarkTable(object: KubeObject): JsonObject {
    const { resourceVersion = "" } = object.metadata;
    const rows = [{ cells: [], object: asJson(partialMetadata(object)) }];
    return { kind: "Table", apiVersion: "meta.k8s.io/v1", metadata: { resourceVersion }, columnDefinitions: [], rows };
  }
}

/** One watch frame. */
export function line(frame: { type: string; object: unknown }): Uint8Array {
  return Buffer.from(`${JSON.stringify(frame)}\n`);
}

const eventEnd = Buffer.from("}\n");

/** Encoded events of the rows sent last. Bound: 1,024 rows; the older half goes when it is full. */
class EncodedEvents {
  static readonly #rowsMax = 1_024;
  #young = new Map<Row, Map<string, Uint8Array>>();
  #old = new Map<Row, Map<string, Uint8Array>>();

  get(row: Row, key: string): Uint8Array | undefined {
    return (this.#young.get(row) ?? this.#old.get(row))?.get(key);
  }

  set(row: Row, key: string, bytes: Uint8Array): void {
    if (this.#young.size >= EncodedEvents.#rowsMax / 2) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    const known = this.#young.get(row) ?? new Map<string, Uint8Array>();
    known.set(key, bytes);
    this.#young.set(row, known);
  }
}

const encodedEvents = new EncodedEvents();
