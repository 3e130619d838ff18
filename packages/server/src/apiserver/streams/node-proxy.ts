import { badRequest, serviceUnavailable } from "@agent-sandbox/api";
import type { ApiResponse } from "../request/api-request.ts";
import { bodyBytes } from "../request/read-body.ts";
import type { NodeDialer } from "../scope/node-dialer.ts";
import type { RequestScope } from "../scope/scope.ts";
import { admit } from "../verbs/admission-chain.ts";
import { type NodeTarget, podTarget } from "./pod-target.ts";
import { proxyTarget } from "./proxy-target.ts";

/** Headers that belong to one connection and are never passed on. */
const hopHeaders = new Set([
  "connection",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
  "te",
  "trailer",
  "host",
  "authorization",
  "content-length",
]);

/** Passes a plain request on to the node that runs the pod, and its answer back as it comes. */
export async function proxyToNode(scope: RequestScope, _verb: string): Promise<ApiResponse> {
  const target = nodeTarget(scope);
  if (["exec", "attach", "portforward"].includes(scope.subresource)) {
    throw badRequest("Upgrade request required");
  }
  const response = await dialerOf(scope).request(target.nodeName, {
    method: scope.request.method,
    path: target.path,
    headers: passedHeaders(scope.request.headers ?? {}),
    body: bodyBytes(scope.request),
    ...(scope.request.signal === undefined ? {} : { signal: scope.request.signal }),
  });
  return { status: response.status, headers: passedHeaders(response.headers), body: response.body };
}

/** The node behind the request's object. */
export function nodeTarget(scope: RequestScope): NodeTarget {
  return scope.subresource === "proxy" ? proxyTarget(scope) : podTarget(scope);
}

/** The dialler, or the error that there is none. */
export function dialerOf(scope: RequestScope): NodeDialer {
  const dialer = scope.server.nodeDialer;
  if (dialer === undefined) throw serviceUnavailable("no node can be reached from this server", 5);
  return dialer;
}

/** Lets admission have its say before a stream is opened. */
export async function admitConnect(scope: RequestScope): Promise<void> {
  const object = scope.server.storage.get(scope.definition, scope)?.object;
  await admit(scope, { verb: "connect", object: undefined, oldObject: object }).validate();
}

function passedHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !hopHeaders.has(name) && !name.startsWith("impersonate-")),
  );
}
