import type { PersistentVolumeClaim, Pod, Sandbox, SandboxSnapshot, SandboxStatus, Service } from "@agent-sandbox/api";
import {
  annotationKeys,
  formatTimestampMs,
  hasReadyReason,
  isControlledBy,
  isMemoryGivenUp,
  nameHash,
  sandboxes,
} from "@agent-sandbox/api";
import { sandboxExpiry } from "../sandbox-expiry/plan.ts";
import { onlyOwnPod, podsReferringTo } from "../sandbox-pod/own-pod.ts";
import { type PodPlan, planPod } from "../sandbox-pod/plan.ts";
import { planRestore, type RestorePlan } from "../sandbox-restore/plan.ts";
import { planService, type ServicePlan } from "../sandbox-service/plan.ts";
import {
  planExpiredMark,
  planNamedMark,
  planSavedMark,
  planSleepMark,
  planStartedMark,
  planWithdrawnMark,
} from "../sandbox-status/plan.ts";
import { planStorage, type StoragePlan } from "../sandbox-storage/plan.ts";
import { type EffectiveMode, effectiveMode } from "../sandbox-suspension/effective-mode.ts";
import { planSleep, type SleepPlan } from "../sandbox-suspension/plan-sleep.ts";

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
  /** The snapshot that it is to start from; looked up only before its first start. */
  readonly snapshot: SandboxSnapshot | undefined;
  readonly nowMs: number;
}

/** What a pass decides. */
export type SandboxPlan =
  | { readonly kind: "idle" }
  | { readonly kind: "mark-expired"; readonly status: SandboxStatus }
  /** The moment of a suspension is written down before the sleep that follows is announced. */
  | { readonly kind: "stamp"; readonly annotations: Readonly<Record<string, string | null>> }
  /** Written only if nobody has written the Sandbox since: a report of activity comes first. */
  | { readonly kind: "announce-sleep" | "note-saved" | "note-restore"; readonly status: SandboxStatus }
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
  readonly sleep: SleepPlan;
  readonly restore: RestorePlan;
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
    if (!isMarkedExpired(sandbox)) return { kind: "mark-expired", status: planExpiry(observed) };
    return planTeardown(observed);
  }
  const live = planLive(observed);
  const { mode, sleep, stamp, restore } = live;
  if (restore.step === "name" && live.pod.failure === undefined && mode.mode === "Running") {
    return { kind: "note-restore", status: planNamedMark(sandbox, restore.restoredFrom, nowMs) };
  }
  if (restore.step === "withdraw") return { kind: "note-restore", status: planWithdrawnMark(sandbox) };
  // What it has run by now is its own, and must be known as such before the Pod that says so goes.
  if (restore.step === "started" && live.pod.action?.do === "delete-pod") {
    return { kind: "note-restore", status: planStartedMark(sandbox, restore.restoredFrom) };
  }
  if (sleep.stage.name === "note-saved") return { kind: "note-saved", status: planSavedMark(sandbox, sleep) };
  if (!fallsAsleep(observed, live)) return live;
  if (mode.stampSuspendedAt === true) return { kind: "stamp", annotations: stamp };
  return { kind: "announce-sleep", status: planSleepMark(sandbox, mode, sleep, nowMs) };
}

/**
 * A Sandbox says that it falls asleep before its Pod goes or stands still, in a pass of its own. A report of activity before that
 * write makes it fail with a conflict; a caller after it reads the announcement and waits for the Sandbox to wake.
 */
function fallsAsleep({ sandbox }: SandboxObserved, { mode, sleep, pod }: LivePlan): boolean {
  if (sleep.stage.name === "announce") return pod.failure === undefined;
  if (mode.mode !== "Suspended" || mode.cause !== "inactivity" || pod.action?.do !== "delete-pod") return false;
  return !hasReadyReason(sandbox, "SandboxSuspended");
}

function isMarkedExpired(sandbox: Sandbox): boolean {
  return hasReadyReason(sandbox, "SandboxExpired");
}

/** The mark that its time is up, which also says that it has started from its snapshot where this pass is the first to see that. */
function planExpiry(observed: SandboxObserved): SandboxStatus {
  const { sandbox, nowMs } = observed;
  const pod = onlyOwnPod(observed);
  const restore = planRestore({ ...observed, pod, mode: effectiveMode(sandbox, nowMs, pod) });
  const status = restore.step === "started" ? planStartedMark(sandbox, restore.restoredFrom) : sandbox.status;
  return planExpiredMark({ ...sandbox, ...(status !== undefined && { status }) }, nowMs);
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
    clearTracked: sandbox.metadata.annotations?.[annotationKeys.podName] !== undefined,
    deleteSandbox: sandbox.spec.shutdownPolicy === "Delete",
  };
}

function planLive(observed: SandboxObserved): LivePlan {
  const { sandbox, nowMs } = observed;
  const own = onlyOwnPod(observed);
  const mode = effectiveMode(sandbox, nowMs, own);
  const restore = planRestore({ ...observed, mode, pod: own });
  const sleep = restoreStage(restore) ?? planSleep({ sandbox, mode, pod: own, nowMs });
  const invalid = invalidConfiguration(observed);
  const storage = invalid === undefined ? planStorage(sandbox, observed.claims) : { actions: [] };
  const isHeld = restore.step === "wait" || restore.step === "name" || restore.step === "withdraw";
  const createBlocked = invalid !== undefined || storage.failure !== undefined || isHeld;
  const pod = planPod({ ...observed, mode: mode.mode, stage: sleep.stage, createBlocked });
  return {
    kind: "live",
    mode,
    sleep,
    restore,
    storage,
    pod,
    service: planServiceStep(observed, pod, invalid),
    ...(invalid === undefined ? {} : { invalid }),
    stamp: suspensionStamp(sandbox, mode, nowMs),
  };
}

/** Before the first start nothing was put to sleep: how far that start has come takes the place of a sleep's stage. */
function restoreStage(restore: RestorePlan): SleepPlan | undefined {
  if (restore.step !== "start" && restore.step !== "failed") return undefined;
  return { wish: undefined, stage: restore.stage };
}

/** With several Pods the Service would reach any of them, and a spec that can have no Pod needs no Service. */
function planServiceStep(observed: SandboxObserved, pod: PodPlan, invalid: string | undefined): ServicePlan {
  if (pod.failure?.kind === "multiple-pods") return { status: "keep" };
  const plan = planService(observed.sandbox, observed.service);
  return invalid !== undefined && plan.action?.do === "create-service" ? { status: "clear" } : plan;
}

function invalidConfiguration({ sandbox, collidesWith }: SandboxObserved): string | undefined {
  if (collidesWith !== undefined) {
    const hash = nameHash(sandbox.metadata.name);
    return `name has the same hash (${hash}) as sandbox "${collidesWith}" of this namespace, whose traffic it would receive; choose another name`;
  }
  return undefined;
}

/** The moment of a suspension that traffic may end is written down once, and taken away on resume, which counts as activity. */
function suspensionStamp(sandbox: Sandbox, mode: EffectiveMode, nowMs: number): Record<string, string | null> {
  // With milliseconds, as activity is reported: activity from earlier in the same second must not wake it.
  if (mode.stampSuspendedAt === true) return { [annotationKeys.suspendedAt]: formatTimestampMs(nowMs) };
  // Who gives up the memory of a Sandbox wants to have it, however long ago it was used.
  if (givesUpMemory(sandbox)) return { [annotationKeys.lastActivityAt]: formatTimestampMs(nowMs) };
  const stamped = sandbox.metadata.annotations?.[annotationKeys.suspendedAt] !== undefined;
  if (!stamped || sandbox.spec.operatingMode === "Suspended") return {};
  if (sandbox.spec.autoSuspension === undefined) return { [annotationKeys.suspendedAt]: null };
  return { [annotationKeys.suspendedAt]: null, [annotationKeys.lastActivityAt]: formatTimestampMs(nowMs) };
}

/** The pass that sees the decision first; the status of every later one is about the start that follows. */
function givesUpMemory(sandbox: Sandbox): boolean {
  if (sandbox.spec.autoSuspension === undefined || !hasReadyReason(sandbox, "RestoreFailed")) return false;
  return isMemoryGivenUp(sandbox);
}
