import {
  apiVersionOf,
  asObject,
  badRequest,
  isJsonObject,
  type KubeObject,
  methodNotAllowed,
} from "@agent-sandbox/api";
import { labelMatcher } from "../registry/selectors.ts";
import { answerValue } from "../request/answer.ts";
import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import { negotiate } from "../request/media-type.ts";
import { readBody } from "../request/read-body.ts";
import type { ResourcePath } from "../request/request-info.ts";
import type { VirtualRequest, VirtualResource } from "../request/virtual-resource.ts";

/** Answers a request to a kind that is computed, not stored. */
export async function serveVirtual(
  resource: VirtualResource,
  request: ApiRequest,
  { path, query }: { path: ResourcePath; query: URLSearchParams },
): Promise<ApiResponse> {
  const format = negotiate(request.headers?.["accept"]);
  const asked: VirtualRequest = {
    user: request.user,
    namespace: path.namespace,
    name: path.name,
    ...(request.signal === undefined ? {} : { signal: request.signal }),
  };
  if (request.method === "POST" && resource.create !== undefined) {
    return answerValue(201, await resource.create(reviewBody(resource, request), asked), format);
  }
  if (request.method === "GET" && path.name !== "" && resource.get !== undefined) {
    return answerValue(200, await resource.get(asked), format);
  }
  if (request.method === "GET" && path.name === "" && resource.list !== undefined) {
    const matches = labelMatcher(query.get("labelSelector") ?? "");
    const all = await resource.list(asked);
    const items = matches === undefined ? all : all.filter((item) => matches(item));
    return answerValue(
      200,
      { kind: `${resource.kind}List`, apiVersion: apiVersionOf(resource), metadata: {}, items },
      format,
    );
  }
  throw methodNotAllowed(request.method, resource);
}

function reviewBody(resource: VirtualResource, request: ApiRequest): KubeObject {
  const { value } = readBody(request);
  if (!isJsonObject(value)) throw badRequest(`the object provided is unrecognized (must be of type ${resource.kind})`);
  const apiVersion = apiVersionOf(resource);
  if ((value["kind"] ?? resource.kind) !== resource.kind || (value["apiVersion"] ?? apiVersion) !== apiVersion) {
    throw badRequest(`the object must be a ${resource.kind} of ${apiVersion}`);
  }
  const metadata = isJsonObject(value["metadata"]) ? value["metadata"] : {};
  return asObject({ ...value, apiVersion, kind: resource.kind, metadata });
}
