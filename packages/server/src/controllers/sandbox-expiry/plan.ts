import { type Expiry, expiryOf, type Sandbox } from "@agent-sandbox/api";

/** Expiry of a Sandbox with the conditions it has, or is about to have. */
export function sandboxExpiry(sandbox: Sandbox, nowMs: number, conditions = sandbox.status?.conditions): Expiry {
  const { shutdownTime, ttlSecondsAfterFinished } = sandbox.spec;
  return expiryOf({ shutdownTime, ttlSecondsAfterFinished, conditions }, nowMs);
}
