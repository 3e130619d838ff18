import type { Condition, Pod, ReadyReason, RestoredFrom, Sandbox, SuspendedReason } from "@agent-sandbox/api";
import {
  findCondition,
  isConditionTrue,
  isControlledBy,
  sandboxes,
  standsStill,
  wakePolicyOf,
} from "@agent-sandbox/api";
import type { RecoveryPlan } from "../sandbox-recovery/plan.ts";
import { canSleepDeeply, type EffectiveMode, type Rung, strategyOf } from "../sandbox-suspension/effective-mode.ts";
import type { SleepPlan, SleepStage } from "../sandbox-suspension/plan-sleep.ts";

/** A condition before it is stamped with time and generation. */
export type Verdict = Pick<Condition, "type" | "status" | "reason" | "message">;

/** A verdict about suspension. */
type SuspendedVerdict = Verdict & { readonly reason: SuspendedReason };

/** What the three steps of a pass came to. */
export interface StepResults {
  /** The Pod the Sandbox looks at after the step, created or patched ones included. */
  readonly pod: Pod | undefined;
  readonly podError: string | undefined;
  /** Set when several Pods are controlled by the Sandbox. */
  readonly multiplePods: string | undefined;
  /** The configuration cannot work, whatever happens; nothing is retried. */
  readonly invalid: string | undefined;
  /** Error texts of all steps in order, the Pod's included. */
  readonly errors: readonly string[];
  /** The Service step left or made a Service. */
  readonly serviceExists: boolean;
  readonly recovery: RecoveryPlan;
  readonly sleep: SleepPlan;
  /** What a start from a snapshot waits for. */
  readonly waitsFor?: string | undefined;
  /** The snapshot that the Sandbox runs from, where the status does not say so yet. */
  readonly restoredFrom?: RestoredFrom | undefined;
}

/** Whether suspension is asked for and how far it has come. */
export function suspendedVerdict(sandbox: Sandbox, mode: EffectiveMode, results: StepResults): SuspendedVerdict {
  const type = "Suspended";
  if (mode.mode === "Running") {
    const message = notSuspendedMessage(sandbox, mode, results.pod);
    return { type, status: "False", reason: notSuspendedReason(mode), message };
  }
  const { pod, podError, sleep } = results;
  if (pod === undefined && podError !== undefined) {
    const message = "Pod state is unknown. Sandbox suspension cannot be confirmed";
    return { type, status: "Unknown", reason: "PodStateUnknown", message };
  }
  if (pod === undefined && sleep.wish?.savedAt !== undefined) {
    const message = `Memory is saved and Pod has been terminated. Sandbox is hibernated${sleepNote(sandbox, mode)}`;
    return { type, status: "True", reason: "PodHibernated", message };
  }
  if (pod === undefined) {
    const message = `Pod has been terminated. Sandbox is suspended${sleepNote(sandbox, mode)}`;
    return { type, status: "True", reason: "PodTerminated", message };
  }
  if (!isControlledBy(pod, sandboxes, sandbox)) {
    const message = "Refused to delete pod because it is not owned by this sandbox";
    return { type, status: "False", reason: "PodNotOwned", message };
  }
  return fallingVerdict(sandbox, mode, sleep.stage);
}

/** How far a Sandbox has come that falls asleep and whose own Pod is there. */
export function fallingVerdict(sandbox: Sandbox, mode: EffectiveMode, stage: SleepStage): SuspendedVerdict {
  const type = "Suspended";
  const note = sleepNote(sandbox, mode);
  const rung = mode.rung ?? "Stop";
  switch (stage.name) {
    case "none":
    case "restore-failed":
    case "saved":
    case "unstarted":
      return {
        type,
        status: "False",
        reason: "PodTerminating",
        message: `Pod is terminating. Sandbox is suspending${note}`,
      };
    case "announce":
    case "asked":
      return { type, status: "False", reason: onTheWay[rung], message: `${asked[rung]}. Sandbox is suspending${note}` };
    case "failed": {
      const message = `${rung} failed: ${stage.why}; the processes run on, and the node tries again`;
      return { type, status: "False", reason: "SuspensionFailed", message };
    }
    case "frozen":
      return { type, status: "True", reason: "PodFrozen", message: `Pod is frozen. Sandbox is suspended${note}` };
    case "note-saved":
    case "leaving": {
      const message = `Memory is saved and Pod is terminating. Sandbox is suspending${note}`;
      return { type, status: "False", reason: "PodHibernating", message };
    }
    case "restoring": {
      const message = `Pod still reads the memory that was saved last. Sandbox is suspending${note}`;
      return { type, status: "False", reason: onTheWay[rung], message };
    }
    default:
      return stage satisfies never;
  }
}

const onTheWay: Readonly<Record<Rung, SuspendedReason>> = {
  Stop: "PodTerminating",
  Freeze: "PodFreezing",
  Hibernate: "PodHibernating",
};

const asked: Readonly<Record<Rung, string>> = {
  Stop: "Pod is terminating",
  Freeze: "Pod is being frozen",
  Hibernate: "Memory of the Pod is being saved",
};

function notSuspendedReason(mode: EffectiveMode): SuspendedReason {
  return mode.cause === "strategy-unavailable" ? "SuspensionStrategyNotAvailable" : "NotSuspended";
}

function notSuspendedMessage(sandbox: Sandbox, mode: EffectiveMode, pod: Pod | undefined): string {
  const strategy = strategyOf(sandbox);
  const refusal = `suspensionStrategy ${strategy} is not available on node "${pod?.spec?.nodeName ?? ""}", which is not one of this engine under gVisor`;
  if (mode.cause === "strategy-unavailable") {
    return `${refusal}; the Sandbox keeps running instead of losing its memory. Use Stop to suspend it without`;
  }
  if (mode.cause === "traffic") return "Sandbox is not suspended: activity was reported after it was suspended";
  const isRefused = strategy !== "Stop" && pod !== undefined && !canSleepDeeply(pod);
  return isRefused ? `Sandbox is not suspended; ${refusal}` : "Sandbox is not suspended";
}

/** Empty for a Sandbox that uses none of the optional fields. */
function sleepNote(sandbox: Sandbox, mode: EffectiveMode): string {
  const wakes = wakePolicyOf(sandbox) === "OnTraffic" ? "; it wakes on traffic" : "";
  if (mode.cause !== "inactivity") return wakes;
  return ` after ${sandbox.spec.autoSuspension?.inactivityTimeoutSeconds ?? 0} s without activity${wakes}`;
}

/** Present only while an owned Pod is over for good: by itself, not because it was deleted. */
export function finishedVerdict(sandbox: Sandbox, { pod, recovery }: StepResults): Verdict | undefined {
  if (pod === undefined || !isControlledBy(pod, sandboxes, sandbox) || recovery.kind !== "none") return undefined;
  // A kubelet ends the containers of a Pod that is suspended or replaced, and reports that as success or failure.
  if (isTerminating(pod) && !isConditionTrue(sandbox.status?.conditions, "Finished")) return undefined;
  const ended = endedVerdict(pod);
  return ended === undefined ? undefined : { type: "Finished", status: "True", ...ended };
}

function endedVerdict(pod: Pod): { readonly reason: ReadyReason; readonly message: string } | undefined {
  if (pod.status?.phase === "Succeeded") return { reason: "PodSucceeded", message: "Pod completed successfully" };
  if (pod.status?.phase === "Failed") return { reason: "PodFailed", message: "Pod failed" };
  return undefined;
}

/** Mirror of the Pod's own condition; undefined removes it. */
export function podScheduledVerdict(sandbox: Sandbox, { pod, podError }: StepResults): Verdict | undefined {
  const type = "PodScheduled";
  if (pod === undefined) {
    if (podError === undefined) return undefined;
    const message = "Pod state is unknown. Pod scheduling cannot be determined";
    return { type, status: "Unknown", reason: "PodSchedulingUnknown", message };
  }
  if (!isControlledBy(pod, sandboxes, sandbox)) return undefined;
  const own = findCondition(pod.status?.conditions, type);
  if (own === undefined) {
    const message = "Pod has not reported a PodScheduled condition yet";
    return { type, status: "Unknown", reason: "PodSchedulingUnknown", message };
  }
  const status = own.status === "True" || own.status === "False" ? own.status : "Unknown";
  const fallback = status === "True" ? "PodScheduled" : "PodSchedulingUnknown";
  return { type, status, reason: isReason(own.reason) ? own.reason : fallback, message: own.message ?? "" };
}

/** A reason outside this pattern would make the API refuse the whole status. */
function isReason(reason: string | undefined): reason is string {
  return reason !== undefined && reason.length <= 1024 && /^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/.test(reason);
}

/** The one condition clients wait for; the first row that matches wins. */
export function readyVerdict(
  sandbox: Sandbox,
  mode: EffectiveMode,
  results: StepResults,
): Verdict & { readonly reason: ReadyReason } {
  const { pod, recovery, sleep } = results;
  if (results.multiplePods !== undefined) return notReady("MultiplePods", results.multiplePods);
  if (results.invalid !== undefined) return notReady("InvalidConfiguration", results.invalid);
  // Before errors: the reason is what the next pass knows of it once the Pod is gone.
  if (mode.mode === "Running" && sleep.stage.name === "restore-failed") {
    return notReady("RestoreFailed", sleep.stage.why === "" ? "saved memory could not be restored" : sleep.stage.why);
  }
  if (results.errors.length > 0) return notReady("ReconcilerError", `Error seen: ${results.errors.join("\n")}`);
  if (mode.mode === "Suspended") {
    const isAsleep = pod === undefined || sleep.stage.name === "frozen";
    return notReady("SandboxSuspended", isAsleep ? "Sandbox is suspended" : "Sandbox is suspending");
  }
  if (results.waitsFor !== undefined) return notReady("SandboxRestoring", results.waitsFor);
  if (recovery.kind !== "none") {
    const message = `Pod failed; replacement ${recovery.attempt} of ${recovery.retriesMax} follows`;
    return notReady("DependenciesNotReady", message);
  }
  // A Pod that was deleted has not failed: its successor comes as soon as it is gone.
  const ended = pod === undefined || isTerminating(pod) ? undefined : endedVerdict(pod);
  if (ended !== undefined) return { type: "Ready", status: "False", ...ended };
  const [podReady, podText] = podReadiness(pod);
  const required = sandbox.spec.service === true || (sandbox.spec.service === undefined && results.serviceExists);
  const serviceText = required ? (results.serviceExists ? "; Service Exists" : "; Service does not exist") : "";
  const message = `${podText}${serviceText}`;
  if (!podReady && sleep.stage.name === "restoring" && !sleep.stage.isCold)
    return notReady("SandboxRestoring", message);
  if (!podReady || (required && !results.serviceExists)) return notReady("DependenciesNotReady", message);
  return { type: "Ready", status: "True", reason: "DependenciesReady", message };
}

function podReadiness(pod: Pod | undefined): [boolean, string] {
  if (pod === undefined) return [false, "Pod does not exist"];
  // A Pod on its way out may report Ready until its last container stops.
  if (isTerminating(pod)) return [false, "Pod is terminating"];
  if (pod.status?.phase !== "Running") return [false, `Pod exists with phase: ${pod.status?.phase ?? ""}`];
  // A Pod that stood still may report Ready until its node has looked again.
  if (standsStill(pod)) return [false, "Pod is waking"];
  if (!isConditionTrue(pod.status.conditions, "Ready")) return [false, "Pod is Running but not Ready"];
  if ((pod.status.podIPs ?? []).length === 0) return [false, "Pod is Ready but has no podIPs yet"];
  return [true, "Pod is Ready"];
}

function isTerminating(pod: Pod): boolean {
  return pod.metadata.deletionTimestamp !== undefined;
}

function notReady(reason: ReadyReason, message: string): Verdict & { readonly reason: ReadyReason } {
  return { type: "Ready", status: "False", reason, message };
}
