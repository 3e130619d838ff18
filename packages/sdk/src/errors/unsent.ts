import type { SandboxError } from "./sandbox-error.ts";

/** Errors of requests that no sandbox has seen. */
const unsent = new WeakSet<object>();

/** Marks the error of a request that proves that no sandbox has seen it. */
export function markUnsent(error: SandboxError): SandboxError {
  unsent.add(error);
  return error;
}

/** Whether an error proves that no sandbox has seen the request; it may be sent again then, whatever it asks for. */
export function isUnsent(error: unknown): boolean {
  return typeof error === "object" && error !== null && unsent.has(error);
}
