import { methodNotAllowed } from "@agent-sandbox/api";
import type { ApiResponse } from "../request/api-request.ts";
import type { RequestScope } from "../request/scope.ts";
import { getVerb } from "../verbs/get.ts";
import { patchVerb } from "../verbs/patch.ts";
import { updateVerb } from "../verbs/update.ts";

/** Reads and writes the whole object through a subresource; the kind's strategy knows what may change there. */
export async function replaceThrough(scope: RequestScope, verb: string): Promise<ApiResponse> {
  switch (verb) {
    case "get":
      return getVerb(scope);
    case "update":
      return updateVerb(scope);
    case "patch":
      return patchVerb(scope);
    default:
      throw methodNotAllowed(verb, scope.definition);
  }
}

/** PUT namespaces/finalize: the only way to take a namespace's last finalizer. */
export async function finalizeSubresource(scope: RequestScope, verb: string): Promise<ApiResponse> {
  if (verb !== "update") throw methodNotAllowed(verb, scope.definition);
  return updateVerb(scope);
}
