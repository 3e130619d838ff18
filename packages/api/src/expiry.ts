import { findCondition } from "./condition.ts";
import type { Condition } from "./meta.ts";
import { tryParseTimestamp } from "./timestamp.ts";

/** What decides when something ends. */
interface ExpiryInput {
  readonly shutdownTime?: string | undefined;
  readonly ttlSecondsAfterFinished?: number | undefined;
  readonly conditions?: readonly Condition[] | undefined;
}

/** Whether something has ended, and if not, how long it still has. */
export type Expiry = { readonly expired: true } | { readonly expired: false; readonly remainingMs?: number };

/** The earlier of the shutdown time and, once finished, the end of the time to live. The instant itself counts as expired. */
export function expiryOf(input: ExpiryInput, nowMs: number): Expiry {
  const instants = [shutdownInstant(input), finishedInstant(input)].filter((instant) => instant !== undefined);
  if (instants.length === 0) return { expired: false };
  const instant = Math.min(...instants);
  return nowMs >= instant ? { expired: true } : { expired: false, remainingMs: instant - nowMs };
}

function shutdownInstant({ shutdownTime }: ExpiryInput): number | undefined {
  return shutdownTime === undefined ? undefined : tryParseTimestamp(shutdownTime);
}

function finishedInstant({ ttlSecondsAfterFinished, conditions }: ExpiryInput): number | undefined {
  const finished = findCondition(conditions, "Finished");
  if (ttlSecondsAfterFinished === undefined || finished?.status !== "True") return undefined;
  const finishedMs = tryParseTimestamp(finished.lastTransitionTime);
  return finishedMs === undefined ? undefined : finishedMs + ttlSecondsAfterFinished * 1000;
}
