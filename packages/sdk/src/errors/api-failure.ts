import { ApiError } from "@agent-sandbox/api/api-error";
import { codeOfStatus, SandboxError, tryCodeOfReason } from "./sandbox-error.ts";

/** Runs a call to the Kubernetes API and turns its errors into ours; what is no ApiError passes through. */
export async function apiCall<T>(what: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw asSandboxError(what, error);
  }
}

/** A SandboxError for an ApiError; anything else, a cancellation above all, stays what it is. */
export function asSandboxError(what: string, error: unknown): unknown {
  if (!(error instanceof ApiError)) return error;
  const code = tryCodeOfReason(error.reason) ?? codeOfStatus(error.status);
  return new SandboxError(code, `${what}: ${error.message}`, { cause: error });
}
