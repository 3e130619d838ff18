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

/** An outcome that the condition tells the user. Unless `retry`, only an event or an edit can change it. */
export class ClaimProblem extends Error {
  override readonly name = "ClaimProblem";
  readonly reason: ClaimReason;
  readonly retry: boolean;

  constructor(reason: ClaimReason, message: string, options: { retry?: boolean; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.retry = options.retry ?? false;
  }
}
