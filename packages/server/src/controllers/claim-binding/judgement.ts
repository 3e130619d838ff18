import type { Sandbox, SandboxClaim, SandboxWarmPool } from "@agent-sandbox/api";
import {
  annotationKeys,
  controllerOf,
  isControlledBy,
  refersTo,
  sandboxClaims,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { isAdoptable } from "./warm-queue.ts";

/** What a Sandbox is to a claim. */
export type Judgement = "ours" | "takeable" | "lost-to-claim" | "not-takeable" | "foreign";

/** Decides by owner UID; labels only say whether a pool member may be taken. */
export function judge(sandbox: Sandbox, claim: SandboxClaim, pool: SandboxWarmPool | undefined): Judgement {
  if (sandbox.metadata.namespace !== claim.metadata.namespace) return "foreign";
  if (isControlledBy(sandbox, sandboxClaims, claim)) return "ours";
  const owner = controllerOf(sandbox);
  if (refersTo(owner, sandboxClaims)) return "lost-to-claim";
  if (!refersTo(owner, sandboxWarmPools)) return "foreign";
  // The UID tells a pool from an earlier one of the same name.
  const takeable = isAdoptable(sandbox) && pool !== undefined && isControlledBy(sandbox, sandboxWarmPools, pool);
  return takeable ? "takeable" : "not-takeable";
}

/** Name of the Sandbox a claim has reserved: the annotation, or the label that older versions wrote. */
export function reservationOf(claim: SandboxClaim): string | undefined {
  const name =
    claim.metadata.annotations?.[annotationKeys.sandboxName] ?? claim.metadata.labels?.[annotationKeys.sandboxName];
  return name === "" ? undefined : name;
}

/** Removes a reservation of exactly this Sandbox, in both forms; undefined when there is none. */
export function planClearReservation(claim: SandboxClaim, name: string): Record<string, unknown> | undefined {
  const annotated = claim.metadata.annotations?.[annotationKeys.sandboxName] === name;
  const labelled = claim.metadata.labels?.[annotationKeys.sandboxName] === name;
  if (!annotated && !labelled) return undefined;
  return {
    ...(annotated ? { annotations: { [annotationKeys.sandboxName]: null } } : {}),
    ...(labelled ? { labels: { [annotationKeys.sandboxName]: null } } : {}),
  };
}
