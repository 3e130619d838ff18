import type { SandboxClaim, SandboxClaimStatus } from "@agent-sandbox/api";
import { findCondition } from "@agent-sandbox/api";
import type { ClaimReason } from "../claim-status/claim-problem.ts";
import type { EventNote } from "../event-recorder.ts";

/** Reasons that only a user can do something about. */
const refusals: ReadonlySet<string> = new Set<ClaimReason>([
  "TemplateNotFound",
  "WarmPoolNotFound",
  "InvalidMetadata",
  "InvalidConfiguration",
  "EnvVarsInjectionRejected",
  "VolumeClaimTemplatesError",
  "BindTimeout",
]);

/** The time of a claim is up. */
export const expiredNote: EventNote = {
  type: "Normal",
  reason: "ClaimExpired",
  action: "Claim Expired",
  note: "Claim expired",
};

/** A claim goes with its time. */
export function deletionNote(policy: "Delete" | "DeleteForeground"): EventNote {
  const note = `Deleting Claim (ShutdownPolicy=${policy})`;
  return { type: "Normal", reason: "ClaimExpired", action: "Deleting", note };
}

/** Says once why a claim is not served; the condition says it for as long as it lasts. */
export function planRefusalNotes(claim: SandboxClaim, status: SandboxClaimStatus): readonly EventNote[] {
  const before = findCondition(claim.status?.conditions, "Ready")?.reason;
  const ready = findCondition(status.conditions, "Ready");
  if (ready === undefined || ready.reason === before || !refusals.has(ready.reason)) return [];
  const { reason, message: note } = ready;
  return [{ type: "Warning", reason, action: "Binding", note }];
}

/** A claim has come to its Sandbox. */
export function launchNote(launchType: "warm" | "cold", sandboxName: string): EventNote {
  if (launchType === "warm") {
    const note = `Adopted warm pool Sandbox "${sandboxName}"`;
    return { type: "Normal", reason: "SandboxAdopted", action: "Adoption", note };
  }
  const note = `Created Sandbox "${sandboxName}"`;
  return { type: "Normal", reason: "SandboxProvisioned", action: "Provisioning", note };
}
