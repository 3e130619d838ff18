import type { PersistentVolumeClaim, Pod, Sandbox, SandboxStatus, Service } from "@agent-sandbox/api";
import { formatTimestampMs, hasReadyReason, isControlledBy, nameHash, sandboxes } from "@agent-sandbox/api";
import { sandboxExpiry } from "../sandbox-expiry/plan.ts";
import { podsReferringTo } from "../sandbox-pod/own-pod.ts";
import { type PodPlan, planPod } from "../sandbox-pod/plan.ts";
import { planService, type ServicePlan } from "../sandbox-service/plan.ts";
import { planExpiredMark, planSleepMark } from "../sandbox-status/plan.ts";
import { planStorage, type StoragePlan } from "../sandbox-storage/plan.ts";
import { type EffectiveMode, effectiveMode } from "../sandbox-suspension/effective-mode.ts";
import { lastActivityAnnotation, podNameAnnotation, suspendedAtAnnotation } from "../well-known.ts";

/** Everything a pass over a Sandbox looks at. */
export interface SandboxObserved {
  readonly sandbox: Sandbox;
  readonly pods: readonly Pod[];
  readonly tracked: Pod | undefined;
  readonly made: string | undefined;
  readonly service: Service | undefined;
  readonly claims: ReadonlyMap<string, PersistentVolumeClaim>;
  /** Name of an older Sandbox of the namespace whose name has the same hash. */
  readonly collidesWith: string | undefined;
  readonly nowMs: number;
}

/** What a pass decides. */
export type SandboxPlan =
  | { readonly kind: "idle" }
  | { readonly kind: "mark-expired"; readonly status: SandboxStatus }
  | { readonly kind: "announce-sleep"; readonly status: SandboxStatus }
  | TeardownPlan
  | LivePlan;

/** Second pass of an expiry: the children go, then perhaps the Sandbox. */
export interface TeardownPlan {
  readonly kind: "teardown";
  readonly pods: readonly { readonly name: string; readonly uid: string }[];
  readonly service: { readonly name: string; readonly uid: string } | undefined;
  readonly clearTracked: boolean;
  readonly deleteSandbox: boolean;
}

/** A Sandbox that lives: its children in the order storage, Pod, Service. */
export interface LivePlan {
  readonly kind: "live";
  readonly mode: EffectiveMode;
  readonly storage: StoragePlan;
  readonly pod: PodPlan;
  readonly service: ServicePlan;
  /** Why no Pod can ever be made from this spec. */
  readonly invalid?: string;
  /** Annotation to stamp on the Sandbox before anything else. */
  readonly stamp: Readonly<Record<string, string | null>>;
}

/** Decides; never reads a clock, a cache or the network. */
export function planSandbox(observed: SandboxObserved): SandboxPlan {
  const { sandbox, nowMs } = observed;
  if (sandbox.metadata.deletionTimestamp !== undefined) return { kind: "idle" };
  if (sandboxExpiry(sandbox, nowMs).expired) {
    if (!isMarkedExpired(sandbox)) return { kind: "mark-expired", status: planExpiredMark(sandbox, nowMs) };
    return planTeardown(observed);
  }
  const live = planLive(observed);
  return fallsAsleep(observed, live)
    ? { kind: "announce-sleep", status: planSleepMark(sandbox, live.mode, nowMs) }
    : live;
}

/**
 * An idle Sandbox says that it falls asleep before its Pod goes, in a pass of its own. A report of activity before that
 * write makes it fail with a conflict; a caller after it reads the announcement and waits for the Sandbox to wake.
 */
function fallsAsleep({ sandbox }: SandboxObserved, { mode, pod }: LivePlan): boolean {
  if (mode.mode !== "Suspended" || mode.cause !== "inactivity" || pod.action?.do !== "delete-pod") return false;
  return !hasReadyReason(sandbox, "SandboxSuspended");
}

function isMarkedExpired(sandbox: Sandbox): boolean {
  return hasReadyReason(sandbox, "SandboxExpired");
}

/** Every Pod that says it is ours goes, whatever its name; what does not stays. */
function planTeardown(observed: SandboxObserved): TeardownPlan {
  const { sandbox, service } = observed;
  const pods = podsReferringTo(observed).filter((pod) => pod.metadata.deletionTimestamp === undefined);
  const ours = service !== undefined && isControlledBy(service, sandboxes, sandbox);
  return {
    kind: "teardown",
    pods: pods.map((pod) => ({ name: pod.metadata.name, uid: pod.metadata.uid ?? "" })),
    service: ours ? { name: service.metadata.name, uid: service.metadata.uid ?? "" } : undefined,
    clearTracked: sandbox.metadata.annotations?.[podNameAnnotation] !== undefined,
    deleteSandbox: sandbox.spec.shutdownPolicy === "Delete",
  };
}

function planLive(observed: SandboxObserved): LivePlan {
  const { sandbox, nowMs } = observed;
  const mode = effectiveMode(sandbox, nowMs);
  const invalid = invalidConfiguration(observed);
  const storage = invalid === undefined ? planStorage(sandbox, observed.claims) : { actions: [] };
  const createBlocked = invalid !== undefined || storage.failure !== undefined;
  const pod = planPod({ ...observed, mode: mode.mode, createBlocked });
  return {
    kind: "live",
    mode,
    storage,
    pod,
    service: planServiceStep(observed, pod, invalid),
    ...(invalid === undefined ? {} : { invalid }),
    stamp: suspensionStamp(sandbox, mode, nowMs),
  };
}

/** With several Pods the Service would reach any of them, and a spec that can have no Pod needs no Service. */
function planServiceStep(observed: SandboxObserved, pod: PodPlan, invalid: string | undefined): ServicePlan {
  if (pod.failure?.kind === "multiple-pods") return { status: "keep" };
  const plan = planService(observed.sandbox, observed.service);
  return invalid !== undefined && plan.action?.do === "create-service" ? { status: "clear" } : plan;
}

function invalidConfiguration({ sandbox, collidesWith }: SandboxObserved): string | undefined {
  if (sandbox.spec.restoreFrom !== undefined) {
    return `restoreFrom snapshot "${sandbox.spec.restoreFrom.snapshotName}" is not available: snapshots are not supported on this engine`;
  }
  if (collidesWith !== undefined) {
    const hash = nameHash(sandbox.metadata.name);
    return `name has the same hash (${hash}) as sandbox "${collidesWith}" of this namespace, whose traffic it would receive; choose another name`;
  }
  return undefined;
}

/** The moment of a suspension that traffic may end is written down once, and taken away on resume, which counts as activity. */
function suspensionStamp(sandbox: Sandbox, mode: EffectiveMode, nowMs: number): Record<string, string | null> {
  // With milliseconds, as activity is reported: activity from earlier in the same second must not wake it.
  if (mode.stampSuspendedAt === true) return { [suspendedAtAnnotation]: formatTimestampMs(nowMs) };
  const stamped = sandbox.metadata.annotations?.[suspendedAtAnnotation] !== undefined;
  if (!stamped || sandbox.spec.operatingMode === "Suspended") return {};
  if (sandbox.spec.autoSuspension === undefined) return { [suspendedAtAnnotation]: null };
  return { [suspendedAtAnnotation]: null, [lastActivityAnnotation]: formatTimestampMs(nowMs) };
}
