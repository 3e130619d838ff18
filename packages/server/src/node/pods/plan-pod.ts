import type { Container, Pod, PodStatus } from "@agent-sandbox/api";
import { isSidecar } from "../pod-spec/resources.ts";
import { activeDeadlineMs, isCutShort } from "./active-deadline.ts";
import type { ObservedPod, PodStep } from "./observed-pod.ts";
import type { ContainerRecord } from "./pod-record.ts";
import { planPodSleep } from "./pod-sleep.ts";
import { phaseOf, podStatus } from "./pod-status.ts";
import { restartDelayMs } from "./restart-backoff.ts";
import { restarts } from "./restart-policy.ts";

/** The next steps for a pod, and its whole status as of now. */
export interface PodPlan {
  readonly steps: readonly PodStep[];
  readonly status: PodStatus;
  readonly requeueAfterMs?: number;
}

/** Grace of a pod that names none; Kubernetes' default. */
const graceDefaultMs = 30_000;

/** Decides; never reads a clock, a cache or the host. */
export function planPod(observed: ObservedPod): PodPlan {
  const status = podStatus(observed);
  if (isLeaving(observed) || observed.record?.isHibernated === true) return planLeaving(observed, status);
  if (observed.refusal !== undefined) return { steps: [], status };
  const sleep = planPodSleep(observed);
  if (sleep.step !== undefined) return { steps: [sleep.step], status };
  const sleepWaits = sleep.requeueAfterMs === undefined ? [] : [sleep.requeueAfterMs];
  const { isFrozen, saved } = observed.sleep.state;
  // Nothing ends or is started in a pod that stands still; what was saved would not fit files that a new run has changed.
  if (isFrozen || saved !== undefined)
    return withWait({ steps: [], status }, [...sleepWaits, ...deadlineWait(observed)]);
  const ended = noteEnds(observed);
  // A container's end is written down before anything follows from it.
  if (ended.length > 0) return { steps: ended, status };
  const steps: PodStep[] = [...planPreparation(observed)];
  const waits: number[] = [...sleepWaits, ...deadlineWait(observed)];
  if (observed.record?.isPrepared === true) planContainers(observed, steps, waits);
  for (const image of observed.images.values()) {
    if (image.kind === "failed" && image.retryAtMs !== undefined) waits.push(image.retryAtMs - observed.nowMs);
  }
  return withWait({ steps, status }, waits);
}

function deadlineWait(observed: ObservedPod): number[] {
  const deadlineMs = activeDeadlineMs(observed);
  return deadlineMs === undefined ? [] : [deadlineMs - observed.nowMs];
}

/** Whether the pod is on its way out: deleted, past its deadline, or done. */
function isLeaving(observed: ObservedPod): boolean {
  if (observed.pod.metadata.deletionTimestamp !== undefined) return true;
  const phase = observed.pod.status?.phase;
  if (phase === "Failed" || phase === "Succeeded") return true;
  if (isCutShort(observed)) return true;
  const computed = phaseOf(observed);
  return observed.refusal === undefined && (computed === "Failed" || computed === "Succeeded");
}

function planLeaving(observed: ObservedPod, status: PodStatus): PodPlan {
  const { pod, record } = observed;
  const isDeleted = pod.metadata.deletionTimestamp !== undefined;
  // Of a hibernated pod all is gone but its memory and its directories, which are its Sandbox's: its containers have not ended.
  if (record === undefined || record.isHibernated === true)
    return { steps: isDeleted ? [{ do: "forget" }] : [], status };
  // A saved sandbox is taken away as it stands: no process of it may run again.
  if (observed.sleep.state.saved === undefined) {
    const ended = noteEnds(observed);
    if (ended.length > 0) return { steps: ended, status };
    const live = Object.values(record.containers).filter(isLive);
    if (live.length > 0) return planStops(observed, live, status);
  }
  const { isPrepared, pauseId, volumes, roots = [], slot } = record;
  if (isPrepared || pauseId !== undefined || volumes.length > 0) return { steps: [{ do: "teardown" }], status };
  // Clients that see the API object gone rely on nothing running and on the pod's volumes being free.
  if (isDeleted) return { steps: [{ do: "forget" }], status };
  return { steps: slot === undefined && roots.length === 0 ? [] : [{ do: "release" }], status };
}

/** Main containers first; sidecars when those are gone, the last one first. */
function planStops(observed: ObservedPod, live: readonly ContainerRecord[], status: PodStatus): PodPlan {
  const { pod, nowMs } = observed;
  const sidecars = (pod.spec?.initContainers ?? []).filter(isSidecar).map(({ name }) => name);
  const mains = live.filter(({ name }) => !sidecars.includes(name));
  const lastSidecar = sidecars.findLast((name) => live.some((container) => container.name === name));
  const due = mains.length > 0 ? mains : live.filter(({ name }) => name === lastSidecar);
  // A pod that fills the disk gets no grace period.
  const graceMs = observed.record?.evicted === undefined ? graceOf(pod) : 0;
  const steps: PodStep[] = [];
  const waits: number[] = [];
  // What stands still hears no signal, and goes at once.
  if (observed.sleep.state.isFrozen) {
    const alive = due.filter(({ stopping }) => stopping?.killed !== true);
    return { steps: alive.map(({ name }) => ({ do: "kill-container", container: name })), status };
  }
  for (const container of due) planStop({ container, graceMs, reason: "pod is being deleted", nowMs }, steps, waits);
  return withWait({ steps, status }, waits);
}

interface StopQuestion {
  readonly container: ContainerRecord;
  readonly graceMs: number;
  readonly reason: string;
  readonly nowMs: number;
}

function planStop({ container, graceMs, reason, nowMs }: StopQuestion, steps: PodStep[], waits: number[]): void {
  const { name, stopping } = container;
  if (stopping === undefined || stopping.graceMs > graceMs) {
    steps.push({ do: "stop-container", container: name, graceMs, reason });
    return;
  }
  const killAtMs = stopping.sinceMs + stopping.graceMs;
  if (nowMs < killAtMs) waits.push(killAtMs - nowMs);
  else if (stopping.killed !== true) steps.push({ do: "kill-container", container: name });
}

/** Zero is a real grace: it kills at once. */
function graceOf(pod: Pod): number {
  const seconds = pod.metadata.deletionGracePeriodSeconds ?? pod.spec?.terminationGracePeriodSeconds;
  return seconds === undefined ? graceDefaultMs : seconds * 1000;
}

function isLive(container: ContainerRecord): boolean {
  return container.end === undefined;
}

/** Runs that the runtime says are over, or that it does not know although they were started. */
function noteEnds({ record, runtime }: ObservedPod): PodStep[] {
  return Object.values(record?.containers ?? {})
    .filter(isLive)
    .filter(({ hostId }) => (runtime.get(hostId)?.status ?? "stopped") === "stopped")
    .map(({ name }) => ({ do: "note-end", container: name }));
}

function planPreparation(observed: ObservedPod): PodStep[] {
  const { pod, record, images, podObstacle } = observed;
  const steps: PodStep[] = [];
  const wanted = [
    ...(pod.spec?.initContainers ?? []).filter((container) => needsImage(observed, container, true)),
    ...(pod.spec?.containers ?? []).filter((container) => needsImage(observed, container, false)),
  ];
  for (const { name } of wanted) {
    if ((images.get(name)?.kind ?? "absent") === "absent") steps.push({ do: "pull-image", container: name });
  }
  if (record?.isPrepared !== true && podObstacle === undefined) steps.push({ do: "prepare" });
  return steps;
}

/** A container that will be started: for the first time, or again. */
function needsImage({ pod, record }: ObservedPod, container: Container, isInit: boolean): boolean {
  const run = record?.containers[container.name];
  if (run === undefined) return true;
  return run.end !== undefined && restarts({ pod, container, isInit, exitCode: run.end.exitCode });
}

/** Init containers one after the other, then all others at once. */
function planContainers(observed: ObservedPod, steps: PodStep[], waits: number[]): void {
  const { pod, record, probes } = observed;
  for (const init of pod.spec?.initContainers ?? []) {
    planContainer({ observed, container: init, isInit: true }, steps, waits);
    const run = record?.containers[init.name];
    const passed = isSidecar(init)
      ? run !== undefined && isLive(run) && (probes.get(init.name)?.isStarted ?? init.startupProbe === undefined)
      : run?.end?.exitCode === 0;
    // Everything has run before once a main container has; a restarted sidecar then delays no start.
    if (!passed && !hasMainRun(observed)) return;
  }
  for (const container of pod.spec?.containers ?? []) {
    planContainer({ observed, container, isInit: false }, steps, waits);
  }
}

function hasMainRun({ pod, record }: ObservedPod): boolean {
  return (pod.spec?.containers ?? []).some(({ name }) => record?.containers[name] !== undefined);
}

interface ContainerQuestion {
  readonly observed: ObservedPod;
  readonly container: Container;
  readonly isInit: boolean;
}

function planContainer({ observed, container, isInit }: ContainerQuestion, steps: PodStep[], waits: number[]): void {
  const { pod, record, images, probes, configObstacles, nowMs } = observed;
  const run = record?.containers[container.name];
  if (run !== undefined && isLive(run)) {
    const failure = probes.get(container.name)?.failure;
    if (failure === undefined && run.stopping === undefined) return;
    const graceMs = run.stopping?.graceMs ?? failure?.graceMs ?? graceOf(pod);
    const reason = `${failure?.probe ?? "liveness"} probe failed`;
    return planStop({ container: run, graceMs, reason, nowMs }, steps, waits);
  }
  if (run?.end !== undefined) {
    if (!restarts({ pod, container, isInit, exitCode: run.end.exitCode })) return;
    const dueMs = Date.parse(run.end.finishedAt) + restartDelayMs(run.crashes);
    if (nowMs < dueMs) {
      waits.push(dueMs - nowMs);
      return;
    }
  }
  if (images.get(container.name)?.kind !== "ready" || configObstacles.has(container.name)) return;
  const attempt = run === undefined ? 0 : run.attempt + 1;
  steps.push({ do: "start-container", container: container.name, attempt, crashes: run?.crashes ?? 0 });
}

function withWait(plan: PodPlan, waits: readonly number[]): PodPlan {
  if (waits.length === 0) return plan;
  return { ...plan, requeueAfterMs: Math.max(0, Math.min(...waits)) };
}
