import { serviceUnavailable } from "@agent-sandbox/api";
import type { ApiResponse } from "../request/api-request.ts";
import type { RequestScope } from "../request/scope.ts";

/** Passes a request on to the node that runs the pod. */
export async function proxyToNode(scope: RequestScope, _verb: string): Promise<ApiResponse> {
  throw serviceUnavailable(`no node serves ${scope.subresource}`);
}
