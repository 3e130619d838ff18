import type { NetworkPolicy, Sandbox, SandboxClaim, SandboxWarmPool } from "@agent-sandbox/api";
import { isConditionTrue, isControlledBy, keyOf, namespacedKey, sandboxClaims } from "@agent-sandbox/api";
import { currentTraceContext } from "../../telemetry/tracing.ts";
import { lookUpTemplate, type TemplateLookup } from "../template-lookup.ts";
import type { ClaimContext } from "./claim-context.ts";
import type { PassFacts } from "./facts.ts";
import type { Candidate } from "./pick-member.ts";

/** Everything a plan for a claim looks at. */
export interface ClaimObserved {
  readonly claim: SandboxClaim;
  /** The pool the claim names. */
  readonly pool: SandboxWarmPool | undefined;
  readonly known: Known;
  /** A network policy that an older version made for this claim alone. */
  readonly legacyPolicy: NetworkPolicy | undefined;
  /** A cold Sandbox was asked for and the request was not answered. */
  readonly isColdUnresolved: boolean;
  /** When this process first saw the claim. */
  readonly firstSeenMs: number;
  /** The span of this pass as an annotation; empty when tracing is off. */
  readonly traceContext: string;
  readonly config: {
    readonly allowedLabelDomains: readonly string[];
    readonly claimObservabilityAnnotations: boolean;
  };
  readonly facts: PassFacts;
  readonly nowMs: number;
}

/**
 * What a plan looks up in the claim's namespace as it goes, so that a bound claim does not pay for a list of its pool's
 * members. A plan is made without awaiting anything, so all answers are of one moment.
 */
export interface Known {
  sandbox(name: string): Sandbox | undefined;
  template(name: string): TemplateLookup;
  /** The members of a pool that no claim has leased. */
  candidates(poolUid: string): readonly Candidate[];
}

/** Collects what a plan needs from the caches; `facts` are what the pass has learnt so far. */
export function observeClaim(context: ClaimContext, claim: SandboxClaim, facts: PassFacts): ClaimObserved {
  const { caches, extensions, clock, config, times, warm, unresolved } = context;
  const { name, namespace = "", uid = "" } = claim.metadata;
  const nowMs = clock.nowMs();
  const isReady = isConditionTrue(claim.status?.conditions, "Ready");
  return {
    claim,
    pool: extensions.pools.get(namespacedKey(namespace, claim.spec.warmPoolRef.name)),
    known: {
      sandbox: (sandboxName) => caches.sandboxes.get(namespacedKey(namespace, sandboxName)),
      template: (templateName) => lookUpTemplate(extensions, namespace, templateName),
      candidates: (poolUid) => warm.candidates(poolUid, nowMs),
    },
    legacyPolicy: legacyPolicyOf(
      claim,
      extensions.networkPolicies.get(namespacedKey(namespace, `${name}-network-policy`)),
    ),
    isColdUnresolved: unresolved.has(keyOf(claim)),
    firstSeenMs: times.seen(keyOf(claim), uid, nowMs, isReady).firstSeenMs,
    traceContext: currentTraceContext(),
    config,
    facts,
    nowMs,
  };
}

/** A user's policy of that name is left alone. */
function legacyPolicyOf(claim: SandboxClaim, policy: NetworkPolicy | undefined): NetworkPolicy | undefined {
  if (policy === undefined || policy.metadata.deletionTimestamp !== undefined) return undefined;
  return isControlledBy(policy, sandboxClaims, claim) ? policy : undefined;
}
