import {
  type ContainerStatus,
  diskFullCondition,
  findCondition,
  formatTimestamp,
  memoryUse,
  type PodCondition,
  podRestoredCondition,
  restoredCondition,
  runtimeVersionCondition,
  sleepAnswer,
} from "@agent-sandbox/api";
import { isSidecar } from "../pod-spec/resources.ts";
import { stillReasons } from "../sleep/sleep-states.ts";
import type { ObservedPod } from "./observed-pod.ts";
import { planPodSleep } from "./pod-sleep.ts";

/** What conditions are computed from. */
export interface ConditionsQuestion {
  readonly observed: ObservedPod;
  readonly phase: string;
  readonly initContainerStatuses: readonly ContainerStatus[];
  readonly containerStatuses: readonly ContainerStatus[];
}

/** The five conditions of the kubelet, that of a disk that is or was full, which build of the runtime drives the pod, how it sleeps, what memory it takes, and whatever else others have written on the pod. */
export function podConditions(question: ConditionsQuestion): PodCondition[] {
  const { observed } = question;
  const old = observed.pod.status?.conditions ?? [];
  const own = [
    condition("PodReadyToStartContainers", observed.record?.isPrepared === true, undefined),
    initialized(question),
    ready("Ready", question),
    ready("ContainersReady", question),
    condition("PodScheduled", true, undefined),
    ...diskFull(observed, old),
    ...runtimeVersion(observed),
    ...asleep(observed),
    ...restored(observed),
    ...startedFrom(observed),
    ...(observed.memory === undefined ? [] : [memoryUse(observed.memory)]),
  ];
  const foreign = old.filter(({ type }) => !own.some((candidate) => candidate.type === type));
  return [...own.map((fresh) => keepTransition(fresh, old, observed.nowMs)), ...foreign];
}

/** Absent for a pod whose disk never was full. */
function diskFull({ diskFull: message }: ObservedPod, old: readonly PodCondition[]): PodCondition[] {
  if (message !== undefined) return [condition(diskFullCondition, true, { reason: "StorageLimit", message })];
  if (!old.some(({ type }) => type === diskFullCondition)) return [];
  return [condition(diskFullCondition, false, { reason: "SpaceFree", message: "there is space again" })];
}

/** The answer to the wish of the pod's Sandbox; absent for a pod that was never asked. */
function asleep(observed: ObservedPod): PodCondition[] {
  const { answer } = planPodSleep(observed);
  return answer === undefined ? [] : [sleepAnswer(answer)];
}

/** How far a start from saved memory has come; absent for a pod that started from its files. */
function restored({ record }: ObservedPod): PodCondition[] {
  const { state, message = "" } = record?.restore ?? {};
  switch (state) {
    case undefined:
      return [];
    case "restoring":
      return [condition(restoredCondition, false, { reason: "Restoring", message: "its memory is being read" })];
    case "restored":
      return [condition(restoredCondition, true, { reason: "Restored" })];
    case "failed":
      return [condition(restoredCondition, false, { reason: "RestoreFailed", message })];
    default:
      return state satisfies never;
  }
}

/** Which snapshot the pod runs from, for clients that look for it; absent for one that was not started from a snapshot. */
function startedFrom({ record }: ObservedPod): PodCondition[] {
  const { origin, restore } = record ?? {};
  if (origin?.snapshotName === undefined) return [];
  const isFailed = restore?.state === "failed";
  const message = isFailed ? (restore.message ?? "") : `started from snapshot ${origin.snapshotName}`;
  return [condition(podRestoredCondition, !isFailed, { reason: isFailed ? "RestoreFailed" : "Restored", message })];
}

/** Absent until a container runs, and under runc. */
function runtimeVersion({ record, runtime }: ObservedPod): PodCondition[] {
  const states = Object.values(record?.containers ?? {}).flatMap(({ hostId }) => runtime.get(hostId) ?? []);
  const state = states.find(({ runtimeMissing }) => runtimeMissing !== undefined) ?? states[0];
  if (state?.runtimeMissing !== undefined)
    return [condition(runtimeVersionCondition, false, { reason: "RuntimeMissing", message: state.runtimeMissing })];
  if (state?.runtimeVersion === undefined) return [];
  return [condition(runtimeVersionCondition, true, { reason: "Installed", message: `runsc ${state.runtimeVersion}` })];
}

function keepTransition(fresh: PodCondition, old: readonly PodCondition[], nowMs: number): PodCondition {
  const before = old.find(({ type }) => type === fresh.type);
  const lastTransitionTime =
    before?.status === fresh.status && before.lastTransitionTime !== undefined
      ? before.lastTransitionTime
      : formatTimestamp(nowMs);
  return { ...fresh, lastTransitionTime };
}

function initialized({ observed, phase, initContainerStatuses }: ConditionsQuestion): PodCondition {
  if (phase === "Succeeded") return condition("Initialized", true, { reason: "PodCompleted" });
  const specs = observed.pod.spec?.initContainers ?? [];
  const incomplete = initContainerStatuses.filter((status, index) => {
    const spec = specs[index];
    if (spec !== undefined && isSidecar(spec)) return status.started !== true;
    return status.state?.terminated?.exitCode !== 0;
  });
  if (incomplete.length === 0) return condition("Initialized", true, undefined);
  return condition("Initialized", false, {
    reason: "ContainersNotInitialized",
    message: `containers with incomplete status: [${incomplete.map(({ name }) => name).join(" ")}]`,
  });
}

function ready(type: "Ready" | "ContainersReady", question: ConditionsQuestion): PodCondition {
  const { observed, phase, containerStatuses, initContainerStatuses } = question;
  if (observed.refusal !== undefined) return condition(type, false, { reason: "PodFailed" });
  if (phase === "Succeeded") return condition(type, false, { reason: "PodCompleted" });
  if (phase === "Failed") return condition(type, false, { reason: "PodFailed" });
  const sidecars = initContainerStatuses.filter((_, index) => {
    const spec = observed.pod.spec?.initContainers?.[index];
    return spec !== undefined && isSidecar(spec);
  });
  const unready = [...sidecars, ...containerStatuses].filter((status) => !status.ready);
  if (unready.length > 0) {
    return condition(type, false, {
      reason: "ContainersNotReady",
      message: `containers with unready status: [${unready.map(({ name }) => name).join(" ")}]`,
    });
  }
  if (type === "Ready") {
    const still = stillness(observed);
    if (still !== undefined) return condition(type, false, still);
    const closed = closedGates(observed);
    if (closed.length > 0)
      return condition(type, false, { reason: "ReadinessGatesNotReady", message: closed.join("; ") });
  }
  return condition(type, true, undefined);
}

/** Why a pod whose containers are ready takes no connection: its processes stand still. */
function stillness({ sleep: { state } }: ObservedPod): { reason: string; message: string } | undefined {
  if (state.saved !== undefined)
    return { reason: stillReasons.saved, message: "its processes are paused, and their memory is on disk" };
  return state.isFrozen ? { reason: stillReasons.frozen, message: "its processes stand still" } : undefined;
}

function closedGates({ pod }: ObservedPod): string[] {
  return (pod.spec?.readinessGates ?? []).flatMap(({ conditionType }) => {
    const found = findCondition(pod.status?.conditions, conditionType);
    if (found?.status === "True") return [];
    return [
      found === undefined
        ? `corresponding condition of pod readiness gate "${conditionType}" does not exist.`
        : `the status of pod readiness gate "${conditionType}" is not "True", but ${found.status}`,
    ];
  });
}

function condition(type: string, isTrue: boolean, why: { reason: string; message?: string } | undefined): PodCondition {
  return { type, status: isTrue ? "True" : "False", ...why };
}
