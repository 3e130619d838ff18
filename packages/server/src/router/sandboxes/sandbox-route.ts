import { annotations, type Condition, labels, type Sandbox, tryParseTimestamp } from "@agent-sandbox/api";

/** What the router keeps of a Sandbox. */
export interface SandboxRoute {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** The object's resourceVersion as a number: later states have higher ones. */
  readonly version: number;
  readonly state: RouteState;
  /** Absent where the sandbox never falls asleep by itself. */
  readonly inactivityTimeoutMs?: number;
  /** The activity that the API knows of; 0 where there is none. */
  readonly reportedActivityMs: number;
  readonly templateRefHash?: string;
}

/** Where a request for the sandbox goes. */
export type RouteState =
  | { readonly kind: "ready"; readonly addresses: readonly string[] }
  /** Not there yet, or on its way back. */
  | { readonly kind: "starting"; readonly why: string }
  /** Asleep or falling asleep; traffic may wake it. */
  | { readonly kind: "asleep" }
  /** Suspended by its owner, who does not want traffic to wake it. */
  | { readonly kind: "held" }
  | { readonly kind: "expired" }
  /** Its Pod ended and nothing will bring it back. */
  | { readonly kind: "finished"; readonly why: string };

/** Reduces a Sandbox to what routing needs; pure. An unclaimed member of a pool has no route: its name could be guessed. */
export function routeOf(sandbox: Sandbox): SandboxRoute | undefined {
  const { metadata, spec } = sandbox;
  if (metadata.labels?.[labels.warmPoolSandbox] !== undefined && isPoolOwned(sandbox)) return undefined;
  if (metadata.deletionTimestamp !== undefined) return undefined;
  const timeoutSeconds = spec.autoSuspension?.inactivityTimeoutSeconds;
  const templateRefHash = metadata.labels?.[labels.templateRefHash];
  return {
    namespace: metadata.namespace ?? "",
    name: metadata.name ?? "",
    uid: metadata.uid ?? "",
    version: Number(metadata.resourceVersion ?? 0),
    state: stateOf(sandbox),
    reportedActivityMs: activityOf(sandbox),
    ...(timeoutSeconds !== undefined && { inactivityTimeoutMs: timeoutSeconds * 1000 }),
    ...(templateRefHash !== undefined && { templateRefHash }),
  };
}

function stateOf(sandbox: Sandbox): RouteState {
  const ready = conditionOf(sandbox, "Ready");
  const addresses = sandbox.status?.podIPs ?? [];
  if (ready?.status === "True" && addresses.length > 0 && !isBeingSuspended(sandbox))
    return { kind: "ready", addresses };
  if (ready?.reason === "SandboxExpired") return { kind: "expired" };
  if (ready?.reason === "SandboxSuspended" || sandbox.spec.operatingMode === "Suspended") {
    return wakesOnTraffic(sandbox) ? { kind: "asleep" } : { kind: "held" };
  }
  if (ready?.reason === "PodFailed" || ready?.reason === "PodSucceeded") {
    return sandbox.spec.podFailurePolicy?.type === "Recreate"
      ? { kind: "starting", why: ready.message }
      : { kind: "finished", why: ready.message };
  }
  return { kind: "starting", why: ready?.message ?? "Sandbox has not been reconciled yet" };
}

/** A user's suspension that no activity since has called off: the Pod is about to go, or going. */
function isBeingSuspended(sandbox: Sandbox): boolean {
  if (sandbox.spec.operatingMode !== "Suspended" || !wakesOnTraffic(sandbox)) return false;
  // A Ready that is older than the suspension speaks of the Pod that it takes away.
  const { observedGeneration } = conditionOf(sandbox, "Ready") ?? {};
  if (observedGeneration !== undefined && observedGeneration < (sandbox.metadata.generation ?? 0)) return true;
  const suspendedAt = sandbox.metadata.annotations?.[annotations.suspendedAt];
  return suspendedAt === undefined || activityOf(sandbox) <= (tryParseTimestamp(suspendedAt) ?? 0);
}

/** Unset, a sandbox wakes on traffic only where it also falls asleep by itself. */
function wakesOnTraffic({ spec }: Sandbox): boolean {
  return spec.wakePolicy === undefined ? spec.autoSuspension !== undefined : spec.wakePolicy === "OnTraffic";
}

function activityOf({ metadata }: Sandbox): number {
  const text = metadata.annotations?.[annotations.lastActivityAt];
  return text === undefined ? 0 : (tryParseTimestamp(text) ?? 0);
}

function isPoolOwned({ metadata }: Sandbox): boolean {
  return (
    metadata.ownerReferences?.some((owner) => owner.controller === true && owner.kind === "SandboxWarmPool") ?? false
  );
}

function conditionOf(sandbox: Sandbox, type: string): Condition | undefined {
  return sandbox.status?.conditions?.find((condition) => condition.type === type);
}
