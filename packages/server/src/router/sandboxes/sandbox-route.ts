import {
  annotationKeys,
  containerEndOf,
  controllerOf,
  findCondition,
  isCalledOff,
  labelKeys,
  refersTo,
  type Sandbox,
  type SandboxPhase,
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
  /** The addresses of its Pod, ready or not. */
  readonly podAddresses: readonly string[];
  /** Tells the last end of its containers from any other; absent where they never ended. */
  readonly containerEnd?: string;
  /** Its Pod stands still, or is about to, and goes on as it is when it wakes. */
  readonly keepsPod: boolean;
  /** The sleep for which its memory was saved; absent where it was not. */
  readonly savedSleep?: string;
  /** The sleep in which its processes stand still in memory, with what is open to them; absent where they run. */
  readonly frozenSleep?: string;
  /** It was asked to freeze and traffic has come since: its node lets it go on at once, or leaves it as it is. */
  readonly isCalledOff: boolean;
  /** The addresses that it served from when it fell asleep with its Pod, until it serves again; absent where that was not seen. */
  readonly servedFrom?: readonly string[];
  /** When its sleep was seen to be called off, until it serves again. */
  readonly thawingSinceMs?: number;
}

/** Where a request for the sandbox goes. */
export type RouteState =
  | {
      readonly kind: "ready";
      readonly addresses: readonly string[];
      /** RFC 3339: since when it can be used. */
      readonly since?: string;
    }
  /** Not there yet, or on its way back. */
  | { readonly kind: "starting"; readonly why: string }
  /** Asleep or falling asleep; traffic may wake it. */
  | { readonly kind: "asleep" }
  /** Suspended by its owner, who does not want traffic to wake it. */
  | { readonly kind: "held" }
  | { readonly kind: "expired" }
  /** Its program ends again and again. */
  | { readonly kind: "crash-loop"; readonly why: string }
  /** Its Pod ended and nothing will bring it back, or it cannot be made as it is described. */
  | { readonly kind: "finished"; readonly why: string };

/** Reduces a Sandbox to what routing needs; pure. An unclaimed member of a pool has no route: its name could be guessed. */
export function routeOf(sandbox: Sandbox): SandboxRoute | undefined {
  const { metadata, spec } = sandbox;
  if (metadata.labels?.[labelKeys.warmPoolSandbox] !== undefined && refersTo(controllerOf(sandbox), sandboxWarmPools))
    return undefined;
  if (metadata.deletionTimestamp !== undefined) return undefined;
  const timeoutSeconds = spec.autoSuspension?.inactivityTimeoutSeconds;
  const templateRefHash = metadata.labels?.[labelKeys.templateRefHash];
  const containerEnd = containerEndOf(sandbox);
  const sleep = sandbox.status?.sleep;
  const phase = sandboxPhase(sandbox);
  return {
    namespace: metadata.namespace ?? "",
    name: metadata.name ?? "",
    uid: metadata.uid ?? "",
    version: Number(metadata.resourceVersion ?? 0),
    state: stateOf(sandbox, phase),
    reportedActivityMs: activityOf(sandbox),
    podAddresses: sandbox.status?.podIPs ?? [],
    keepsPod: sleep !== undefined && sleep.savedAt === undefined,
    isCalledOff: isCalledOff(sandbox),
    ...(containerEnd !== undefined && { containerEnd }),
    ...(sleep?.savedAt !== undefined && { savedSleep: sleep.id }),
    ...(phase.phase === "frozen" && sleep !== undefined && { frozenSleep: sleep.id }),
    ...(timeoutSeconds !== undefined && { inactivityTimeoutMs: timeoutSeconds * 1000 }),
    ...(templateRefHash !== undefined && { templateRefHash }),
  };
}

function stateOf(sandbox: Sandbox, { phase, wakesOnTraffic, message }: SandboxPhase): RouteState {
  switch (phase) {
    case "ready": {
      const addresses = sandbox.status?.podIPs ?? [];
      if (addresses.length === 0) return { kind: "starting", why: message };
      const since = findCondition(sandbox.status?.conditions, "Ready")?.lastTransitionTime;
      return { kind: "ready", addresses, ...(since !== undefined && { since }) };
    }
    case "suspending":
    case "suspended":
    case "frozen":
    case "hibernated":
    case "archived":
      return wakesOnTraffic ? { kind: "asleep" } : { kind: "held" };
    case "crash-loop":
      return { kind: "crash-loop", why: message };
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
  const text = metadata.annotations?.[annotationKeys.lastActivityAt];
  return text === undefined ? 0 : (tryParseTimestamp(text) ?? 0);
}
