import { isDeepStrictEqual } from "node:util";
import { ignore, type Pod, type PodStatus, pods, type Service } from "@agent-sandbox/api";
import type { Informer, Outcome } from "@agent-sandbox/kube";
import { HostError } from "../host/host-error.ts";
import { parseDockerConfig, type RegistryCredentials } from "../images/registry-auth.ts";
import { awaitDaemon } from "./await-daemon.ts";
import { noteEnd } from "./note-end.ts";
import { type Observation, observePod } from "./observe-pod.ts";
import type { PodStep } from "./observed-pod.ts";
import { planPod } from "./plan-pod.ts";
import type { PodContext } from "./pod-context.ts";
import { preparePod } from "./prepare-pod.ts";
import type { FileRefresher } from "./refresh-files.ts";
import { type NodeLimits, runtimeFor } from "./refusal.ts";
import { startContainer } from "./start-container.ts";
import { killContainer, stopContainer } from "./stop-container.ts";
import { forgetPod, teardownPod } from "./teardown-pod.ts";

/** Rounds of observe, plan and apply in one pass: a start needs two, an end and its restart three. */
const roundsMax = 8;

/** How soon a pod that waits for somebody else's object looks again. */
const obstacleRetryMs = 1_000;

/** What the controller reads besides the pod. */
export interface PodControllerOptions {
  readonly context: PodContext;
  readonly pods: Informer<Pod>;
  readonly servicesOf: (namespace: string) => readonly Service[];
  readonly limits: NodeLimits;
  readonly files: FileRefresher;
}

/** One pass over one pod: everything its state asks for, then its status, written once and only if it changed. */
export async function reconcilePod(options: PodControllerOptions, key: string, signal: AbortSignal): Promise<Outcome> {
  const { context } = options;
  const pod = options.pods.get(key);
  await removeOrphans(options, key, pod, signal);
  if (pod === undefined) return { kind: "done" };
  let actions = 0;
  for (let round = 0; round < roundsMax; round++) {
    const question = { pod, limits: options.limits, services: options.servicesOf(pod.metadata.namespace ?? "") };
    const observation = await observePod(context, question, signal);
    const { observed } = observation;
    const plan = planPod(observed);
    const isGone = plan.steps.some((step) => step.do === "forget");
    // The last status before the pod goes says how its containers ended.
    if (plan.steps.length === 0 || isGone || round === roundsMax - 1)
      await writeStatus(context, pod, plan.status, signal);
    if (observed.podObstacle !== undefined) tellObstacle(context, pod, observed.podObstacle.message);
    try {
      for (const step of plan.steps) await applyStep(options, pod, step, observation, signal);
    } catch (error) {
      await writeStatus(context, pod, plan.status, signal);
      tellFailure(context, pod, error);
      throw error;
    }
    actions += plan.steps.length;
    if (plan.steps.length > 0 && !isGone && !onlyPulls(plan.steps)) continue;
    if (onlyPulls(plan.steps) && plan.steps.length > 0) await writeStatus(context, pod, plan.status, signal);
    const waits = [
      plan.requeueAfterMs,
      isGone ? undefined : await options.files.refresh(context, pod, signal),
      observed.podObstacle || observed.configObstacles.size > 0 ? obstacleRetryMs : undefined,
    ];
    const known = waits.filter((wait) => wait !== undefined);
    return known.length === 0
      ? { kind: "done", actions }
      : { kind: "requeue-after", afterMs: Math.min(...known), actions };
  }
  return { kind: "requeue-after", afterMs: 0, actions };
}

/** A pull goes on in the background; nothing more can follow from it in this pass. */
function onlyPulls(steps: readonly PodStep[]): boolean {
  return steps.every((step) => step.do === "pull-image");
}

/** Pods that this node still has and the API does not: force-deleted, or replaced under the same name while away. */
async function removeOrphans(
  { context }: PodControllerOptions,
  key: string,
  pod: Pod | undefined,
  signal: AbortSignal,
): Promise<void> {
  for (const record of context.records.all()) {
    if (`${record.namespace}/${record.name}` !== key || record.uid === pod?.metadata.uid) continue;
    await teardownPod(context, record, signal);
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
      return preparePod(context, pod, { runtime, plan: observation.volumes.plan }, signal);
    }
    case "start-container": {
      const start = observation.starts.get(step.container);
      const container = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].find(
        ({ name }) => name === step.container,
      );
      if (start === undefined || container === undefined) return;
      const { attempt, crashes } = step;
      await startContainer(context, { pod, container, attempt, crashes, ...start }, signal);
      return awaitDaemon(context, { pod, container }, signal);
    }
    case "note-end":
      return noteEnd(context, pod, step.container, signal);
    case "stop-container":
      return stopContainer(context, { pod, ...step });
    case "kill-container":
      return killContainer(context, uid, step.container, signal);
    case "teardown": {
      const record = context.records.get(uid);
      return record === undefined ? undefined : teardownPod(context, record, signal);
    }
    case "forget":
      await context.client
        .delete(
          pods,
          { namespace: pod.metadata.namespace ?? "", name: pod.metadata.name },
          { uid, gracePeriodSeconds: 0, signal },
        )
        .catch(ignore("NotFound", "Conflict"));
      return forgetPod(context, uid, signal);
    default:
      return step satisfies never;
  }
}

function wantImage(context: PodContext, pod: Pod, name: string, { objects }: Observation): void {
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
  context.puller.want({
    key: `${pod.metadata.uid ?? ""}/${name}`,
    reference: container?.image ?? "",
    policy: policy === "Always" || policy === "Never" ? policy : "IfNotPresent",
    credentials,
  });
}

/** The uid makes the write fail, instead of hitting a later pod of the same name. */
async function writeStatus({ client }: PodContext, pod: Pod, status: PodStatus, signal: AbortSignal): Promise<void> {
  if (isSame(pod.status, status)) return;
  const { namespace = "", name, uid } = pod.metadata;
  const body = { metadata: { uid }, status };
  await client
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

function tellObstacle({ events }: PodContext, pod: Pod, message: string): void {
  events.record({ object: pod, type: "Warning", reason: "FailedMount", message });
}

function tellFailure({ events }: PodContext, pod: Pod, error: unknown): void {
  if (!(error instanceof HostError)) return;
  events.record({
    object: pod,
    type: "Warning",
    reason: "FailedCreatePodSandBox",
    message: `Failed to create pod sandbox: ${error.message}`,
  });
}
