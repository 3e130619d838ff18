import { methodNotAllowed } from "@agent-sandbox/api";
import type { ApiResponse } from "../request/api-request.ts";
import { notServed } from "../request/not-served.ts";
import type { RequestScope } from "../scope/scope.ts";
import { proxyToNode } from "../streams/node-proxy.ts";
import { bindingSubresource, evictionSubresource, tokenSubresource } from "./actions.ts";
import { finalizeSubresource } from "./finalize.ts";
import { scaleSubresource } from "./scale.ts";

type Handler = (scope: RequestScope, verb: string) => Promise<ApiResponse>;

const handlers: Readonly<Record<string, Handler>> = {
  "pods/binding": bindingSubresource,
  "pods/eviction": evictionSubresource,
  "pods/log": proxyToNode,
  "pods/exec": proxyToNode,
  "pods/attach": proxyToNode,
  "pods/portforward": proxyToNode,
  "nodes/proxy": proxyToNode,
  "serviceaccounts/token": tokenSubresource,
  "namespaces/finalize": finalizeSubresource,
};

/** Answers a request to a subresource other than status. */
export function serveSubresource(scope: RequestScope, verb: string): Promise<ApiResponse> {
  const { definition, version, subresource } = scope;
  if (subresource === "scale" && version.scale !== undefined) return scaleSubresource(scope, verb);
  const key = `${definition.resource}/${subresource}`;
  const isOffered = definition.group === "" && definition.subresources.includes(subresource);
  const handler = isOffered && Object.hasOwn(handlers, key) ? handlers[key] : undefined;
  if (handler === undefined) throw notServed();
  if (scope.name === "") throw methodNotAllowed(verb, definition);
  return handler(scope, verb);
}
