import { methodNotAllowed } from "@agent-sandbox/api";
import type { ApiResponse } from "../request/api-request.ts";
import type { RequestScope } from "../scope/scope.ts";
import { updateVerb } from "../verbs/update.ts";

/** PUT namespaces/finalize: the only way to take a namespace's last finalizer. */
export async function finalizeSubresource(scope: RequestScope, verb: string): Promise<ApiResponse> {
  if (verb !== "update") throw methodNotAllowed(verb, scope.definition);
  return updateVerb(scope);
}
