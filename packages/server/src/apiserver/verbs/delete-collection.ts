import { apiVersionOf, asJson, ignore } from "@agent-sandbox/api";
import type { Row } from "../../store/store.ts";
import { answerValue } from "../request/answer.ts";
import type { ApiResponse } from "../request/api-request.ts";
import type { RequestScope } from "../scope/scope.ts";
import { deleteObject } from "./delete.ts";
import { readDeleteOptions } from "./delete-options.ts";
import { listPage } from "./list.ts";
import { readListQuery } from "./list-query.ts";

/** Deletes under way at once: enough to share the store's commits, few enough to leave room for others. */
const parallelMax = 16;

/** DELETE of a collection: every object that matches, as if deleted alone. */
export async function deleteCollectionVerb(scope: RequestScope): Promise<ApiResponse> {
  const options = readDeleteOptions(scope);
  const page = listPage(scope, readListQuery(scope));
  const { storage } = scope.server;
  const remove = async (row: Row): Promise<void> => {
    const { name, namespace = "" } = storage.read(scope.definition, row).metadata;
    await deleteObject({ ...scope, name, namespace }, options).catch(ignore("NotFound"));
  };
  for (let at = 0; at < page.rows.length; at += parallelMax) {
    await Promise.all(page.rows.slice(at, at + parallelMax).map(remove));
  }
  const items = await Promise.all(page.rows.map((row) => storage.readAs(scope.definition, scope.version, row)));
  const apiVersion = apiVersionOf({ group: scope.definition.group, version: scope.version.name });
  const metadata = { resourceVersion: String(storage.store.revision) };
  return answerValue(200, { kind: scope.definition.listKind, apiVersion, metadata, items: items.map(asJson) });
}
