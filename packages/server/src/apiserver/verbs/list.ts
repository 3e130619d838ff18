import { apiVersionOf, asJson, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import type { Row } from "../../store/store.ts";
import { StoreError } from "../../store/store-error.ts";
import { answerBytes, answerValue } from "../request/answer.ts";
import type { ApiResponse } from "../request/api-request.ts";
import type { RequestScope } from "../scope/scope.ts";
import { listPrefix, objectKey } from "../storage/object-key.ts";
import { partialMetadata } from "../table/partial-metadata.ts";
import { cursorExpired, encodeCursor, type ListQuery, readListQuery } from "./list-query.ts";
import { tableOf } from "./table.ts";

/** GET of a collection, in the shape asked for. */
export async function listVerb(scope: RequestScope): Promise<ApiResponse> {
  const page = listPage(scope, readListQuery(scope));
  const metadata = listMetadata(page);
  const { format } = scope;
  if (format.as === undefined && format.encoding === "json") return listBytes(scope, page.rows, metadata);
  const objects = await Promise.all(
    page.rows.map((row) => scope.server.storage.readAs(scope.definition, scope.version, row)),
  );
  return answerValue(200, listShape(scope, objects, metadata), format);
}

function listShape(scope: RequestScope, objects: KubeObject[], metadata: JsonObject): JsonObject {
  if (scope.format.as === "Table") return tableOf(scope, objects, metadata);
  if (scope.format.as !== undefined) {
    const items = objects.map((object) => asJson(partialMetadata(object)));
    return { kind: "PartialObjectMetadataList", apiVersion: "meta.k8s.io/v1", metadata, items };
  }
  return { ...listHeader(scope, metadata), items: objects.map(asJson) };
}

function listHeader({ definition, version }: RequestScope, metadata: JsonObject): JsonObject {
  const apiVersion = apiVersionOf({ group: definition.group, version: version.name });
  return { kind: definition.listKind, apiVersion, metadata };
}

const comma = Buffer.from(",");

/** The stored bytes one after another: a list costs one copy and no parsing. */
async function listBytes(scope: RequestScope, rows: readonly Row[], metadata: JsonObject): Promise<ApiResponse> {
  const { definition, version } = scope;
  const head = JSON.stringify(listHeader(scope, metadata));
  const chunks: Uint8Array[] = [Buffer.from(`${head.slice(0, -1)},"items":[`)];
  for (const [index, row] of rows.entries()) {
    if (index > 0) chunks.push(comma);
    await scope.server.storage.renderInto({ definition, version, row }, chunks);
  }
  chunks.push(Buffer.from("]}"));
  return answerBytes(200, [Buffer.concat(chunks)]);
}

/** The rows of one page and how to get the next. */
export interface ListPage {
  readonly revision: number;
  readonly rows: readonly Row[];
  readonly next: string | undefined;
  readonly remaining: number | undefined;
}

function listMetadata({ revision, next, remaining }: ListPage): JsonObject {
  return {
    resourceVersion: String(revision),
    ...(next === undefined ? {} : { continue: next }),
    ...(remaining === undefined ? {} : { remainingItemCount: remaining }),
  };
}

/** The rows that match, as of one revision. */
export function listPage(scope: RequestScope, query: ListQuery): ListPage {
  if (query.onlyName !== undefined && scope.definition.namespaced === (scope.namespace !== "") && isNewest(query)) {
    return namedPage(scope, query, query.onlyName);
  }
  const { storage } = scope.server;
  const atRevision = wantedRevision(query, storage.store.revision);
  const prefix = listPrefix(scope.definition, scope.namespace);
  const rows: Row[] = [];
  let afterKey = query.cursor?.afterKey;
  for (;;) {
    const missing = query.limit === undefined ? undefined : query.limit - rows.length;
    const found = listAt(query, () =>
      storage.store.list({
        prefix,
        ...(atRevision === undefined ? {} : { atRevision }),
        ...(missing === undefined ? {} : { limit: missing }),
        ...(afterKey === undefined ? {} : { afterKey }),
      }),
    );
    const kept = query.matches === undefined ? found.rows : found.rows.filter((row) => matches(scope, query, row));
    rows.push(...kept);
    afterKey = found.rows.at(-1)?.key ?? afterKey;
    if (!found.more) return { revision: found.revision, rows, next: undefined, remaining: undefined };
    if (query.limit !== undefined && rows.length >= query.limit) {
      const next = encodeCursor({ revision: found.revision, afterKey: afterKey ?? "" });
      const remaining = query.matches === undefined ? countAfter(scope, found.revision, afterKey ?? "") : undefined;
      return { revision: found.revision, rows, next, remaining };
    }
  }
}

function countAfter(scope: RequestScope, atRevision: number, afterKey: string): number {
  const prefix = listPrefix(scope.definition, scope.namespace);
  return scope.server.storage.store.list({ prefix, atRevision, afterKey }).rows.length;
}

function isNewest(query: ListQuery): boolean {
  return !query.isExact && query.cursor === undefined;
}

/** A selector for one name needs no scan; clients watch single objects this way. */
function namedPage(scope: RequestScope, query: ListQuery, name: string): ListPage {
  const { store } = scope.server.storage;
  wantedRevision(query, store.revision);
  const revision = store.revision;
  const row = store.get(objectKey(scope.definition, { namespace: scope.namespace, name }));
  const rows = row !== undefined && matches(scope, query, row) ? [row] : [];
  return { revision, rows, next: undefined, remaining: undefined };
}

function matches(scope: RequestScope, query: ListQuery, row: Row): boolean {
  return query.matches === undefined || query.matches(scope.server.storage.read(scope.definition, row));
}

/** The revision to read at; undefined is the newest, which is never older than what was asked for. */
function wantedRevision(query: ListQuery, newest: number): number | undefined {
  if (query.cursor !== undefined) return query.cursor.revision;
  if (query.revision !== undefined && query.revision > newest) {
    throw new StoreError("future-revision", `${query.revision}, current: ${newest}`);
  }
  return query.isExact ? query.revision : undefined;
}

function listAt<T>(query: ListQuery, list: () => T): T {
  try {
    return list();
  } catch (error) {
    if (query.cursor !== undefined && error instanceof StoreError && error.code === "compacted") throw cursorExpired();
    throw error;
  }
}
