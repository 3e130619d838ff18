import type { Condition, Sandbox } from "@agent-sandbox/api";

/** When something ends: already, later, or never. */
export type Expiry =
  | { readonly kind: "never" }
  | { readonly kind: "expired" }
  | { readonly kind: "later"; readonly atMs: number };

/** What can end an object. */
export interface Deadlines {
  readonly shutdownTime?: string | undefined;
  readonly ttlSecondsAfterFinished?: number | undefined;
  readonly conditions?: readonly Condition[] | undefined;
}

/** The earlier of the absolute time and the time to live after the Finished condition; equality counts as expired. */
export function expiryOf({ shutdownTime, ttlSecondsAfterFinished, conditions }: Deadlines, nowMs: number): Expiry {
  const instants: number[] = [];
  if (shutdownTime !== undefined) instants.push(Date.parse(shutdownTime));
  const finished = conditions?.find((condition) => condition.type === "Finished" && condition.status === "True");
  if (finished !== undefined && ttlSecondsAfterFinished !== undefined) {
    instants.push(Date.parse(finished.lastTransitionTime) + ttlSecondsAfterFinished * 1000);
  }
  const known = instants.filter((instant) => !Number.isNaN(instant));
  if (known.length === 0) return { kind: "never" };
  const atMs = Math.min(...known);
  return nowMs >= atMs ? { kind: "expired" } : { kind: "later", atMs };
}

/** Expiry of a Sandbox with the conditions it has, or is about to have. */
export function sandboxExpiry(sandbox: Sandbox, nowMs: number, conditions = sandbox.status?.conditions): Expiry {
  const { shutdownTime, ttlSecondsAfterFinished } = sandbox.spec;
  return expiryOf({ shutdownTime, ttlSecondsAfterFinished, conditions }, nowMs);
}
