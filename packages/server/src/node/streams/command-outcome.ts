import type { LimitHit } from "../pods/limit-hit.ts";

/** How a command that ran over a stream came to its end. */
export type CommandOutcome =
  | { readonly kind: "exited"; readonly exitCode: number; readonly limit?: LimitHit }
  | { readonly kind: "failed"; readonly message: string };

/** The Kubernetes `Status` that travels over the error channel of exec and attach. */
export function outcomeStatus(outcome: CommandOutcome): Record<string, unknown> {
  if (outcome.kind === "failed") {
    return { metadata: {}, status: "Failure", reason: "InternalError", message: outcome.message, code: 500 };
  }
  if (outcome.exitCode === 0) return { metadata: {}, status: "Success" };
  const { limit } = outcome;
  const why = limit === undefined ? "" : `: ${limit.message}`;
  const causes = [{ reason: "ExitCode", message: String(outcome.exitCode) }, ...(limit === undefined ? [] : [limit])];
  return {
    metadata: {},
    status: "Failure",
    message: `command terminated with non-zero exit code: exit status ${outcome.exitCode}${why}`,
    reason: "NonZeroExitCode",
    details: { causes },
  };
}
