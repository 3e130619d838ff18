import { errorText } from "../sandbox-lifecycle/error-text.ts";

/** Why a claim is not served, as its Ready condition says it. */
export type ClaimReason =
  | "TemplateNotFound"
  | "WarmPoolNotFound"
  | "TemplateNotReady"
  | "AdoptionConflict"
  | "SandboxCreatePending"
  | "InvalidMetadata"
  | "InvalidConfiguration"
  | "EnvVarsInjectionRejected"
  | "VolumeClaimTemplatesError"
  | "WarmSandboxPending"
  | "BindTimeout"
  | "SandboxNotOwned"
  | "ReconcilerError";

/** Why a pass could not serve its claim. It becomes the Ready condition; it is returned, never thrown. */
export interface ClaimProblem {
  readonly kind: "problem";
  readonly reason: ClaimReason;
  readonly message: string;
  /** Whether the claim is tried again after a backoff. Without it the claim rests until an event or an edit brings it back. */
  readonly retry: boolean;
  /** The error of the API that caused it, for the log. */
  readonly cause?: unknown;
}

/** Makes a problem; without options the claim is not tried again by itself. */
export function claimProblem(
  reason: ClaimReason,
  message: string,
  { retry = false, cause }: { readonly retry?: boolean; readonly cause?: unknown } = {},
): ClaimProblem {
  return { kind: "problem", reason, message, retry, ...(cause === undefined ? {} : { cause }) };
}

/** A request of the pass that the API refused, or that had no answer. */
export function failedRequest(error: unknown): ClaimProblem {
  return claimProblem("ReconcilerError", errorText(error), { retry: true, cause: error });
}

/** A race was lost; the next pass starts from what is true by then. The API's own text stays out of the condition. */
export function adoptionConflict(detail: string, cause?: unknown): ClaimProblem {
  const message = `adoption write conflict: ${detail}; the next pass retries from a converged view`;
  return claimProblem("AdoptionConflict", message, { retry: true, cause });
}

/** Tells a problem from the value that was asked for. */
export function isProblem(value: object | undefined): value is ClaimProblem {
  return value !== undefined && "kind" in value && value.kind === "problem";
}
