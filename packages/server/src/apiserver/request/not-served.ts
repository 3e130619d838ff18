import { ApiError } from "@agent-sandbox/api";

/** The 404 for a path that names nothing we serve. */
export function notServed(): ApiError {
  return new ApiError("NotFound", "the server could not find the requested resource", { details: {} });
}
