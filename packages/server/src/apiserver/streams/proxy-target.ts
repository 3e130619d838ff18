import { notFound } from "@agent-sandbox/api";
import { type RequestScope, subjectOf } from "../scope/scope.ts";
import type { NodeTarget } from "./pod-target.ts";

/** The node and path for nodes/proxy: the node's own endpoint, as it is. Throws NotFound. */
export function proxyTarget(scope: RequestScope): NodeTarget {
  const query = scope.query.toString();
  const tail = `${scope.rest === "" ? "/" : scope.rest}${query === "" ? "" : `?${query}`}`;
  const [name = ""] = scope.name.split(":");
  if (scope.server.storage.getRow(scope.definition, { name }) === undefined) throw notFound(subjectOf(scope, name));
  return { nodeName: name, path: tail };
}
