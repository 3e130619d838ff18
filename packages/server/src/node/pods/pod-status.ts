import type { Container, ContainerStatus, Pod, PodStatus } from "@agent-sandbox/api";
import { formatTimestamp } from "@agent-sandbox/api";
import { isSidecar, qosClass } from "../pod-spec/resources.ts";
import { isCutShort, isPastDeadline } from "./active-deadline.ts";
import { servesDaemon } from "./daemon-watch.ts";
import type { ObservedPod } from "./observed-pod.ts";
import { podConditions } from "./pod-conditions.ts";
import type { ContainerRecord, RunEnd } from "./pod-record.ts";
import { restartDelayMs } from "./restart-backoff.ts";
import { restarts } from "./restart-policy.ts";

/** The whole status of a pod, from plain values; equal inputs give equal statuses, so that nothing is written twice. */
export function podStatus(observed: ObservedPod): PodStatus {
  const { pod, record, refusal, nodeAddress, nowMs } = observed;
  const phase = phaseOf(observed);
  const startTime = pod.status?.startTime ?? record?.startedAt ?? formatTimestamp(nowMs);
  const initContainerStatuses = statusesOf(observed, pod.spec?.initContainers ?? [], true);
  const containerStatuses = statusesOf(observed, pod.spec?.containers ?? [], false);
  const address = record?.address ?? pod.status?.podIP;
  const terminal = terminalReason(observed);
  return {
    phase,
    conditions: podConditions({ observed, phase, initContainerStatuses, containerStatuses }),
    hostIP: nodeAddress,
    hostIPs: [{ ip: nodeAddress }],
    ...(address !== undefined && { podIP: address, podIPs: [{ ip: address }] }),
    startTime,
    qosClass: pod.status?.qosClass ?? qosClass(pod),
    ...(initContainerStatuses.length > 0 && { initContainerStatuses }),
    ...(refusal === undefined && { containerStatuses }),
    ...(pod.metadata.generation !== undefined && { observedGeneration: pod.metadata.generation }),
    ...terminal,
  };
}

/** Keeps the reason of a phase that is final already. */
function terminalReason(observed: ObservedPod): Pick<PodStatus, "reason" | "message"> {
  const { pod, refusal } = observed;
  if (pod.status?.phase === "Failed" || pod.status?.phase === "Succeeded") {
    const { reason, message } = pod.status;
    return { ...(reason !== undefined && { reason }), ...(message !== undefined && { message }) };
  }
  if (refusal !== undefined) return { reason: refusal.reason, message: refusal.message };
  const { restore } = observed.record ?? {};
  if (restore?.state === "failed") return { reason: "RestoreFailed", message: restore.message ?? "" };
  if (observed.record?.evicted !== undefined) return { reason: "Evicted", message: observed.record.evicted };
  if (isPastDeadline(observed)) {
    return { reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline" };
  }
  return {};
}

/** Pending until a main container has run; final once none will run again. */
export function phaseOf(observed: ObservedPod): "Pending" | "Running" | "Succeeded" | "Failed" {
  const { pod, record, refusal } = observed;
  const known = pod.status?.phase;
  if (known === "Failed" || known === "Succeeded") return known;
  if (refusal !== undefined || isCutShort(observed)) return "Failed";
  if (hasFailedInit(observed)) return "Failed";
  const mains = pod.spec?.containers ?? [];
  const runs = mains.map((container) => ({ container, run: record?.containers[container.name] }));
  if (runs.every(({ run }) => run === undefined)) return "Pending";
  const isDeleted = pod.metadata.deletionTimestamp !== undefined;
  const done = runs.every(({ container, run }) => {
    if (run?.end === undefined) return false;
    return isDeleted || !restarts({ pod, container, isInit: false, exitCode: run.end.exitCode });
  });
  if (!done) return "Running";
  return runs.every(({ run }) => run?.end?.exitCode === 0) ? "Succeeded" : "Failed";
}

function hasFailedInit({ pod, record }: ObservedPod): boolean {
  return (pod.spec?.initContainers ?? []).some((container) => {
    const end = record?.containers[container.name]?.end;
    if (end === undefined || end.exitCode === 0 || isSidecar(container)) return false;
    return !restarts({ pod, container, isInit: true, exitCode: end.exitCode });
  });
}

function statusesOf(observed: ObservedPod, containers: readonly Container[], isInit: boolean): ContainerStatus[] {
  return containers.map((container) => containerStatus(observed, container, isInit));
}

function containerStatus(observed: ObservedPod, container: Container, isInit: boolean): ContainerStatus {
  const run = observed.record?.containers[container.name];
  const base = { name: container.name, image: run?.image ?? container.image ?? "", imageID: run?.imageId ?? "" };
  if (run === undefined) {
    const state = willNeverStart(observed, isInit)
      ? { terminated: neverStarted }
      : { waiting: waitingState(observed, container, isInit) };
    return { ...base, ready: false, started: false, restartCount: 0, state, lastState: {} };
  }
  const containerID = `agent-sandbox://${run.hostId}`;
  const lastState = run.previousEnd === undefined ? {} : { terminated: terminated(run.previousEnd) };
  const shared = { ...base, containerID, restartCount: run.attempt };
  if (run.end === undefined) {
    const verdict = observed.probes.get(container.name);
    const isStarted = verdict?.isStarted ?? container.startupProbe === undefined;
    const isReady =
      isStarted &&
      run.stopping === undefined &&
      (verdict?.isReady ?? container.readinessProbe === undefined) &&
      (!servesDaemon(observed.pod, container) || observed.daemons.has(run.hostId));
    const running = run.startedAt === undefined ? {} : { startedAt: run.startedAt };
    return { ...shared, ready: isReady, started: isStarted, state: { running }, lastState };
  }
  return { ...shared, started: false, ...endedState({ observed, container, isInit, run, end: run.end, lastState }) };
}

/** What a kubelet says of a container that its pod's end came before. */
const neverStarted = {
  exitCode: 137,
  reason: "ContainerStatusUnknown",
  message: "The container could not be located when the pod was terminated",
};

/** Whether the pod ended when only this start was missing; behind an init container it stays PodInitializing, as a kubelet has it. */
function willNeverStart(observed: ObservedPod, isInit: boolean): boolean {
  if (isInit || !(isFinal(observed.pod) || isCutShort(observed))) return false;
  return (observed.pod.spec?.initContainers ?? []).every((init) => {
    const run = observed.record?.containers[init.name];
    return isSidecar(init) ? run !== undefined : run?.end?.exitCode === 0;
  });
}

interface EndedQuestion {
  readonly observed: ObservedPod;
  readonly container: Container;
  readonly isInit: boolean;
  readonly run: ContainerRecord;
  readonly end: RunEnd;
  readonly lastState: ContainerStatus["lastState"];
}

function endedState(question: EndedQuestion): Pick<ContainerStatus, "ready" | "state" | "lastState"> {
  const { observed, container, isInit, run, end, lastState = {} } = question;
  const { pod, nowMs } = observed;
  const isOver = pod.metadata.deletionTimestamp !== undefined || isFinal(pod) || isCutShort(observed);
  const state = { terminated: terminated(end) };
  if (isOver || !restarts({ pod, container, isInit, exitCode: end.exitCode })) {
    return { ready: isInit && end.exitCode === 0, state, lastState };
  }
  const delayMs = restartDelayMs(run.crashes);
  if (delayMs === 0 || nowMs >= Date.parse(end.finishedAt) + delayMs) return { ready: false, state, lastState };
  const { namespace = "", name, uid = "" } = pod.metadata;
  const message = `back-off ${formatDelay(delayMs)} restarting failed container=${container.name} pod=${name}_${namespace}(${uid})`;
  return { ready: false, state: { waiting: { reason: "CrashLoopBackOff", message } }, lastState: state };
}

function isFinal(pod: Pod): boolean {
  return pod.status?.phase === "Failed" || pod.status?.phase === "Succeeded";
}

/** `10s`, `1m20s`, `5m0s`: as Go prints durations, which is what people search for. */
function formatDelay(delayMs: number): string {
  const total = Math.round(delayMs / 1000);
  return total < 60 ? `${total}s` : `${Math.floor(total / 60)}m${total % 60}s`;
}

function waitingState(
  observed: ObservedPod,
  container: Container,
  isInit: boolean,
): { reason: string; message?: string } {
  const image = observed.images.get(container.name);
  if (image?.kind === "failed") return { reason: image.reason, message: image.message };
  const obstacle = observed.configObstacles.get(container.name);
  if (obstacle !== undefined && image?.kind === "ready") return { reason: obstacle.reason, message: obstacle.message };
  if (observed.podObstacle?.isWatched === true)
    return { reason: observed.podObstacle.reason, message: observed.podObstacle.message };
  const isBehindInit = !isInit && (observed.pod.spec?.initContainers ?? []).length > 0;
  return {
    reason: isBehindInit || (isInit && observed.record?.isPrepared === true) ? "PodInitializing" : "ContainerCreating",
  };
}

function terminated(end: RunEnd): NonNullable<NonNullable<ContainerStatus["state"]>["terminated"]> {
  return {
    exitCode: end.exitCode,
    reason: end.reason,
    ...(end.signal !== undefined && { signal: end.signal }),
    ...(end.message !== undefined && { message: end.message }),
    ...(end.startedAt !== undefined && { startedAt: end.startedAt }),
    finishedAt: end.finishedAt,
    containerID: `agent-sandbox://${end.hostId}`,
  };
}
