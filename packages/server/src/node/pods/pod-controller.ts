import { isDeepStrictEqual } from "node:util";
import {
  filesGenerationOf,
  ignore,
  namespacedKey,
  type Pod,
  type PodStatus,
  pods,
  type Service,
} from "@agent-sandbox/api";
import type { Informer, Outcome } from "@agent-sandbox/kube";
import { HostError } from "../host/host-error.ts";
import type { PrepareRootfsRequest } from "../host/rootfs.ts";
import { parseDockerConfig, type RegistryCredentials } from "../images/registry-auth.ts";
import { noteEnd } from "./note-end.ts";
import { type Observation, observePod } from "./observe-pod.ts";
import type { ObservedPod, Obstacle, PodStep } from "./observed-pod.ts";
import type { OwnerWait } from "./owner-wait.ts";
import { planPod } from "./plan-pod.ts";
import type { PodContext } from "./pod-context.ts";
import { type PodObjects, readPodObjects } from "./pod-objects.ts";
import { applyPodSleep } from "./pod-sleep.ts";
import { preparePod } from "./prepare-pod.ts";
import type { FileRefresher } from "./refresh-files.ts";
import { type NodeLimits, runtimeFor } from "./refusal.ts";
import { rootfsOf, startContainer } from "./start-container.ts";
import { killContainer, stopContainer } from "./stop-container.ts";
import { forgetPod, releasePod, teardownPod } from "./teardown-pod.ts";

/** Rounds of observe, plan and apply in one pass: a start needs two, an end and its restart three. */
const roundsMax = 8;

/** How soon a pod that waits for an object that is not watched looks again. */
const obstacleRetryMs = 1_000;

/** What the controller reads besides the pod. */
export interface PodControllerOptions {
  readonly context: PodContext;
  readonly pods: Informer<Pod>;
  readonly servicesOf: (namespace: string) => readonly Service[];
  readonly limits: NodeLimits;
  readonly files: FileRefresher;
  /** What was written over a pod of the cache, which the cache learns of later: the next pass may come before. */
  readonly written: WeakMap<Pod, PodStatus>;
  readonly ownerWait: OwnerWait;
}

/** One pass over one pod: everything its state asks for, then its status, written once and only if it changed. */
export async function reconcilePod(options: PodControllerOptions, key: string, signal: AbortSignal): Promise<Outcome> {
  const { context } = options;
  const pod = options.pods.get(key);
  await removeOrphans(options, key, pod, signal);
  const quietMs = quietFor(options, key, pod);
  if (pod === undefined) return { kind: "done" };
  if (quietMs > 0) return { kind: "requeue-after", afterMs: quietMs };
  let actions = 0;
  let written = options.written.get(pod) ?? pod.status;
  let isLeaving = pod.metadata.deletionTimestamp !== undefined;
  const report = async (status: PodStatus): Promise<void> => {
    if (isSame(written, status)) return;
    written = status;
    const current = await writeStatus(context, pod, status, signal);
    isLeaving ||= current?.metadata.deletionTimestamp !== undefined || current?.metadata.uid !== pod.metadata.uid;
    options.written.set(pod, status);
  };
  const readObjects = readOnce(context, pod, signal);
  for (let round = 0; round < roundsMax; round++) {
    const question = {
      pod,
      limits: options.limits,
      services: options.servicesOf(pod.metadata.namespace ?? ""),
      readObjects,
    };
    const observation = await observePod(context, question, signal);
    const { observed } = observation;
    const plan = planPod(observed);
    const isGone = plan.steps.some((step) => step.do === "forget");
    // How the containers ended is written while what they had is given back, and before the pod goes.
    const isOver = plan.steps.some((step) => step.do === "teardown" || step.do === "release");
    const isTold =
      plan.steps.length === 0 || isOver || round === roundsMax - 1 || (isGone && !hasSameEnds(written, plan.status));
    const telling = isTold ? report(plan.status) : Promise.resolve();
    if (isGone) await telling;
    if (goesOn(observed, plan.steps)) {
      await report(plan.status);
      if (isLeaving) return { kind: "done", actions };
    }
    if (observed.podObstacle !== undefined) tellObstacle(context, pod, observed.podObstacle);
    try {
      await Promise.all([telling, applySteps(options, pod, plan.steps, observation, signal)]);
    } catch (error) {
      await report(plan.status);
      tellFailure(context, pod, plan.steps, error);
      throw error;
    }
    actions += plan.steps.length;
    const isWaiting = onlyPulls(plan.steps) && !hasPulled(context, pod, plan.steps);
    if (plan.steps.length > 0 && !isGone && !isWaiting) continue;
    if (isWaiting && plan.steps.length > 0) await report(plan.status);
    const waits = [
      plan.requeueAfterMs,
      isGone ? undefined : await options.files.refresh(context, pod, signal),
      hasUntoldObstacle(observed) ? obstacleRetryMs : undefined,
    ];
    const known = waits.filter((wait) => wait !== undefined);
    return known.length === 0
      ? { kind: "done", actions }
      : { kind: "requeue-after", afterMs: Math.min(...known), actions };
  }
  return { kind: "requeue-after", afterMs: 0, actions };
}

/**
 * Whether a guest may go on from its memory with these steps. The API has to say so before: the controller takes a pod away in which nothing of the guest runs, and what
 * was saved stays only then.
 */
function goesOn({ record }: ObservedPod, steps: readonly PodStep[]): boolean {
  return record?.restore?.state === "restoring" && steps.some((step) => step.do === "start-container");
}

/** How long nothing is done or said about a pod that waits to be named by its Sandbox: 0 for every other. */
function quietFor({ context, ownerWait }: PodControllerOptions, key: string, pod: Pod | undefined): number {
  const isWaiting =
    pod !== undefined &&
    pod.metadata.deletionTimestamp === undefined &&
    context.records.get(pod.metadata.uid ?? "")?.isPrepared !== true &&
    context.ownerOf(pod).kind === "unproven";
  if (isWaiting) return ownerWait.remainingMs(key, pod, context.clock.nowMs());
  ownerWait.clear(key);
  return 0;
}

/** Whether a status says the same of every container; no client reads the rest of it once the pod goes. */
function hasSameEnds(old: PodStatus | undefined, status: PodStatus): boolean {
  const { phase, containerStatuses, initContainerStatuses = [] } = status;
  return isSame(old, {
    phase,
    containerStatuses,
    ...(initContainerStatuses.length > 0 && { initContainerStatuses }),
  } as PodStatus);
}

async function applySteps(
  options: PodControllerOptions,
  pod: Pod,
  steps: readonly PodStep[],
  observation: Observation,
  signal: AbortSignal,
): Promise<void> {
  for (const [index, step] of steps.entries()) {
    // An image that was at hand changes what is prepared with it.
    if (step.do !== "pull-image" && index > 0 && hasPulled(options.context, pod, steps)) return;
    await applyStep(options, pod, step, observation, signal);
  }
}

/** What a pod names is read at most once in a pass: its rounds follow each other within milliseconds. */
function readOnce({ client, tokens }: PodContext, pod: Pod, signal: AbortSignal): () => Promise<PodObjects> {
  let reading: Promise<PodObjects> | undefined;
  return () => {
    reading ??= Promise.all([readPodObjects(client, pod, signal), tokens.ensure(pod, signal)]).then(
      ([objects]) => objects,
    );
    return reading;
  };
}

/** A pull goes on in the background; nothing more can follow from it in this pass. */
function onlyPulls(steps: readonly PodStep[]): boolean {
  return steps.every((step) => step.do === "pull-image");
}

/** Whether every image that a plan asked for was on this machine. */
function hasPulled({ puller }: PodContext, { metadata }: Pod, steps: readonly PodStep[]): boolean {
  const wanted = steps.filter((step) => step.do === "pull-image");
  return (
    wanted.length > 0 && wanted.every(({ container }) => puller.state(`${metadata.uid}/${container}`).kind === "ready")
  );
}

/** Pods that this node still has and the API does not: force-deleted, or replaced under the same name while away. */
async function removeOrphans(
  { context }: PodControllerOptions,
  key: string,
  pod: Pod | undefined,
  signal: AbortSignal,
): Promise<void> {
  for (const record of context.records.all()) {
    if (namespacedKey(record.namespace, record.name) !== key || record.uid === pod?.metadata.uid) continue;
    if (record.isHibernated === true) continue;
    await teardownPod(context, record, signal);
    await releasePod(context, context.records.get(record.uid) ?? record, signal);
    await forgetPod(context, record.uid, signal);
  }
}

async function applyStep(
  options: PodControllerOptions,
  pod: Pod,
  step: PodStep,
  observation: Observation,
  signal: AbortSignal,
): Promise<void> {
  const { context } = options;
  const uid = pod.metadata.uid ?? "";
  switch (step.do) {
    case "pull-image":
      return wantImage(context, pod, step.container, observation);
    case "prepare": {
      const runtime = runtimeFor(pod, options.limits);
      if (typeof runtime !== "string" || !observation.volumes.ok) return;
      const roots = firstRoots(context, pod, observation);
      const { plan } = observation.volumes;
      const { sandbox } = observation;
      const key = sandbox?.metadata.uid ?? uid;
      await context.turns.run(key, () => preparePod(context, pod, { runtime, plan, sandbox, roots }, signal));
      return options.files.note(context, pod, plan.files);
    }
    case "start-container": {
      const start = observation.starts.get(step.container);
      const container = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].find(
        ({ name }) => name === step.container,
      );
      if (start === undefined || container === undefined) return;
      const { attempt, crashes } = step;
      return startContainer(context, { pod, container, attempt, crashes, ...start }, signal);
    }
    case "note-end":
      return noteEnd(context, pod, step.container, signal);
    case "stop-container":
      return stopContainer(context, { pod, ...step });
    case "kill-container":
      return killContainer(context, uid, step.container, signal);
    case "freeze":
    case "thaw":
    case "save":
    case "continue":
      return applyPodSleep(context, pod, step, signal);
    case "teardown": {
      const record = context.records.get(uid);
      return record === undefined ? undefined : teardownPod(context, record, signal);
    }
    case "release": {
      const record = context.records.get(uid);
      return record === undefined ? undefined : releasePod(context, record, signal);
    }
    case "forget":
      return removePod(context, pod, signal);
    default:
      return step satisfies never;
  }
}

/** Takes the pod out of the API, then what is left of it off the machine; what is interrupted in between has a record and no pod, and is found by that. */
async function removePod(context: PodContext, pod: Pod, signal: AbortSignal): Promise<void> {
  const { namespace = "", name, uid = "" } = pod.metadata;
  await context.client
    .delete(pods, { namespace, name }, { uid, gracePeriodSeconds: 0, signal })
    .catch(ignore("NotFound", "Conflict"));
  const record = context.records.get(uid);
  // A cache may show a pod for a while after it was forgotten: what it had may be the next pod's by then.
  if (record?.isHibernated === true) return;
  if (record !== undefined) await releasePod(context, record, signal);
  await forgetPod(context, uid, signal);
}

/** Root file systems of the containers that start first and for the first time, as far as their images are there: that of an earlier run is released before it is made again. */
function firstRoots(context: PodContext, pod: Pod, { starts, observed, sandbox }: Observation): PrepareRootfsRequest[] {
  const [init] = pod.spec?.initContainers ?? [];
  const first = init === undefined ? (pod.spec?.containers ?? []) : [init];
  const sandboxUid = sandbox?.metadata.uid;
  const generation =
    observed.record === undefined ? sandbox && filesGenerationOf(sandbox) : observed.record.layerGeneration;
  const record = {
    uid: pod.metadata.uid ?? "",
    ...(sandboxUid !== undefined && { sandboxUid }),
    ...(generation !== undefined && { layerGeneration: generation }),
  };
  return first.flatMap((container) => {
    const start = starts.get(container.name);
    if (observed.record?.containers[container.name] !== undefined) return [];
    return start === undefined ? [] : [rootfsOf(context, record, { container, image: start.image })];
  });
}

function wantImage(context: PodContext, pod: Pod, name: string, { objects }: Observation): Promise<void> {
  const container = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].find(
    (spec) => spec.name === name,
  );
  const policy = container?.imagePullPolicy;
  const credentials: ReadonlyMap<string, RegistryCredentials>[] = (pod.spec?.imagePullSecrets ?? []).flatMap(
    ({ name: secretName }) => {
      const entries = objects.secret(secretName ?? "")?.data;
      const text = entries?.[".dockerconfigjson"] ?? entries?.[".dockercfg"];
      return text === undefined ? [] : [parseDockerConfig(Buffer.from(text, "base64").toString("utf8"))];
    },
  );
  return context.puller.want({
    key: `${pod.metadata.uid ?? ""}/${name}`,
    reference: container?.image ?? "",
    policy: policy === "Always" || policy === "Never" ? policy : "IfNotPresent",
    credentials,
  });
}

/** The uid makes the write fail, instead of hitting a later pod of the same name. */
/** Resolves with the pod as it is then; undefined where it is gone. */
async function writeStatus(
  { client }: PodContext,
  pod: Pod,
  status: PodStatus,
  signal: AbortSignal,
): Promise<Pod | undefined> {
  const { namespace = "", name, uid } = pod.metadata;
  const body = { metadata: { uid }, status };
  return client
    .patch(
      pods,
      { namespace, name },
      { type: "merge", body },
      { subresource: "status", fieldManager: "kubelet", signal },
    )
    .catch(ignore("NotFound", "Conflict"));
}

function isSame(old: PodStatus | undefined, status: PodStatus): boolean {
  const kept = Object.fromEntries(Object.keys(status).map((key) => [key, old?.[key as keyof PodStatus]]));
  return isDeepStrictEqual(JSON.parse(JSON.stringify(kept)), JSON.parse(JSON.stringify(status)));
}

/** What no watch tells the end of is looked at again. */
function hasUntoldObstacle({ podObstacle, configObstacles }: ObservedPod): boolean {
  return (podObstacle !== undefined && podObstacle.isWatched !== true) || configObstacles.size > 0;
}

function tellObstacle({ events }: PodContext, pod: Pod, { reason, message }: Obstacle): void {
  events.record({ object: pod, type: "Warning", reason, message });
}

/** Where nothing of a pod was to be made, the failed step is one of its sleep or of its end. */
function tellFailure({ events }: PodContext, pod: Pod, steps: readonly PodStep[], error: unknown): void {
  if (!(error instanceof HostError)) return;
  const sleep = steps.map((step) => sleepFailures[step.do]).find((found) => found !== undefined);
  const { reason, what } = sleep ?? { reason: "FailedCreatePodSandBox", what: "Failed to create pod sandbox" };
  events.record({ object: pod, type: "Warning", reason, message: `${what}: ${error.message}` });
}

/** What the event of a failed step of a pod's sleep says. A sleep that the host refuses makes no event: the pod's condition has the reason. */
const sleepFailures: Partial<Record<PodStep["do"], { readonly reason: string; readonly what: string }>> = {
  freeze: { reason: "FailedSuspend", what: "Failed to freeze the pod" },
  save: { reason: "FailedSuspend", what: "Failed to save the pod" },
  thaw: { reason: "FailedResume", what: "Failed to let the frozen pod go on" },
  continue: { reason: "FailedResume", what: "Failed to let the paused pod go on" },
};
