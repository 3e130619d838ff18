import { ApiError } from "@agent-sandbox/api";

/** A 4xx says that nothing was made; anything else leaves it open. */
export function isAnswered(error: unknown): boolean {
  return error instanceof ApiError && error.status < 500;
}
