import type { SandboxClaim, SandboxClaimStatus } from "@agent-sandbox/api";
import { expiryOf } from "@agent-sandbox/api";

/** Whether a claim with this status has expired, or in how many milliseconds it does. */
export function claimExpiry(claim: SandboxClaim, status: SandboxClaimStatus | undefined, nowMs: number) {
  const { shutdownTime, ttlSecondsAfterFinished } = claim.spec.lifecycle ?? {};
  return expiryOf({ shutdownTime, ttlSecondsAfterFinished, conditions: status?.conditions }, nowMs);
}
