import { notFound } from "@agent-sandbox/api";
import { answerBytes, answerValue } from "../request/answer.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { type RequestScope, subjectOf } from "../scope/scope.ts";
import { partialMetadata } from "../table/partial-metadata.ts";
import { tableOf } from "./table.ts";

/** GET of one object, in the shape asked for. */
export async function getVerb(scope: RequestScope): Promise<ApiResponse> {
  const { storage } = scope.server;
  const row = storage.getRow(scope.definition, scope);
  if (row === undefined) throw notFound(subjectOf(scope));
  const { format } = scope;
  if (format.as === undefined && format.encoding === "json") {
    return answerBytes(200, [await storage.render(scope.definition, scope.version, row)]);
  }
  const object = await storage.readAs(scope.definition, scope.version, row);
  if (format.as === "Table") return answerValue(200, tableOf(scope, [object], {}), format);
  return answerValue(200, format.as === undefined ? object : partialMetadata(object), format);
}
