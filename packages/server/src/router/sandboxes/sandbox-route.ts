import {
  annotations,
  controllerOf,
  labels,
  refersTo,
  type Sandbox,
  sandboxPhase,
  sandboxWarmPools,
  tryParseTimestamp,
} from "@agent-sandbox/api";

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
  /** Its Pod ended and nothing will bring it back, or it cannot be made as it is described. */
  | { readonly kind: "finished"; readonly why: string };

/** Reduces a Sandbox to what routing needs; pure. An unclaimed member of a pool has no route: its name could be guessed. */
export function routeOf(sandbox: Sandbox): SandboxRoute | undefined {
  const { metadata, spec } = sandbox;
  if (metadata.labels?.[labels.warmPoolSandbox] !== undefined && refersTo(controllerOf(sandbox), sandboxWarmPools))
    return undefined;
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
  const { phase, wakesOnTraffic, message } = sandboxPhase(sandbox);
  switch (phase) {
    case "ready": {
      const addresses = sandbox.status?.podIPs ?? [];
      return addresses.length > 0 ? { kind: "ready", addresses } : { kind: "starting", why: message };
    }
    case "suspending":
    case "suspended":
    case "frozen":
    case "hibernated":
    case "archived":
      return wakesOnTraffic ? { kind: "asleep" } : { kind: "held" };
    case "expired":
      return { kind: "expired" };
    case "restore-failed":
    case "finished":
    case "failed":
    // One that is being deleted has no route at all.
    case "deleting":
      return { kind: "finished", why: message };
    case "starting":
    case "restoring":
      return { kind: "starting", why: message === "" ? "Sandbox has not been reconciled yet" : message };
    default:
      return phase satisfies never;
  }
}

function activityOf({ metadata }: Sandbox): number {
  const text = metadata.annotations?.[annotations.lastActivityAt];
  return text === undefined ? 0 : (tryParseTimestamp(text) ?? 0);
}
