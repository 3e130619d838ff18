import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import { notServed } from "../request/not-served.ts";
import type { ServerParts } from "../server-parts.ts";

/** Answers /openapi/v2 and /openapi/v3. */
export function serveOpenApi(_server: ServerParts, _request: ApiRequest, _path: string): ApiResponse {
  throw notServed();
}
