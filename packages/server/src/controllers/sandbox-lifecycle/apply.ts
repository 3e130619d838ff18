import type { Sandbox, SandboxStatus } from "@agent-sandbox/api";
import {
  annotationKeys,
  formatTimestamp,
  ignore,
  isReasonOf,
  namespacedKey,
  pods,
  sandboxes,
  services,
  uidOf,
} from "@agent-sandbox/api";
import { currentTraceContext, inSpan } from "../../telemetry/tracing.ts";
import { planStatus, planStatusPatch } from "../sandbox-status/plan.ts";
import { applyService, applyStorage, asError, rethrow } from "./apply-children.ts";
import { applyPod, type PodResult, trackedAnnotation } from "./apply-pod.ts";
import type { PassMemory, SandboxContext } from "./context.ts";
import type { LivePlan, SandboxObserved, TeardownPlan } from "./plan.ts";

/** What a pass over a living Sandbox came to. */
export interface LiveResult {
  readonly status: SandboxStatus;
  /** Errors that are tried again; several Pods are not among them, because only an event can change that. */
  readonly errors: readonly Error[];
  readonly deferredMs?: number;
  readonly pod: PodResult;
}

/** Storage, Pod, Service, in that order; a failed step does not stop the next, except that no Pod starts without its claims. */
export async function applyLive(
  context: SandboxContext,
  observed: SandboxObserved,
  plan: LivePlan,
  memory: PassMemory,
  signal: AbortSignal,
): Promise<LiveResult> {
  const { sandbox, nowMs } = observed;
  await annotate(context, sandbox, { ...plan.stamp, ...plan.pod.record, ...traceAnnotation(sandbox) }, signal);
  const storageError = await inSpan("reconcilePVCs", {}, () => applyStorage(context, sandbox, plan.storage, signal));
  const pod = await inSpan("reconcilePod", {}, async (span) => {
    const blocked = storageError !== undefined && plan.pod.action?.do === "create-pod";
    const podPlan = blocked ? { recovery: plan.pod.recovery } : plan.pod;
    const step = {
      observed: { ...observed, mode: plan.mode.mode, stage: plan.sleep.stage, createBlocked: blocked },
      plan: podPlan,
      memory,
    };
    const result = await applyPod(context, step, signal);
    const event = result.created === true ? "NewPodStatusObserved" : "ExistingPodStatusObserved";
    if (result.pod !== undefined) {
      span.addEvent(event, { "pod.Name": result.pod.metadata.name, "pod.Phase": result.pod.status?.phase ?? "" });
    }
    return result;
  });
  const annotationError = await annotateTracked(context, sandbox, pod, signal);
  const service = await inSpan("reconcileService", {}, () => applyService(context, sandbox, plan.service, signal));
  const multiple = pod.plan.failure?.kind === "multiple-pods" ? pod.plan.failure.message : undefined;
  const podError = pod.error ?? annotationError;
  const errors = [storageError, podError, service.error].filter((error) => error !== undefined);
  const status = planStatus({
    sandbox,
    mode: plan.mode,
    service: service.status,
    clusterDomain: context.config.clusterDomain,
    nowMs,
    results: {
      pod: pod.pod,
      podError: podError?.message,
      multiplePods: multiple,
      invalid: plan.invalid ?? pod.invalid,
      errors: errors.map((error) => error.message),
      serviceExists: service.exists || (service.status === "keep" && sandbox.status?.service !== undefined),
      recovery: pod.plan.recovery,
      sleep: plan.sleep,
      waitsFor: plan.restore.step === "wait" ? plan.restore.message : undefined,
      restoredFrom: plan.restore.step === "started" ? plan.restore.restoredFrom : undefined,
    },
  });
  const returned = multiple === undefined ? errors : errors.filter((error) => error !== pod.error);
  return { status, errors: returned, pod, ...(pod.deferredMs === undefined ? {} : { deferredMs: pod.deferredMs }) };
}

function traceAnnotation(sandbox: Sandbox): Record<string, string> {
  if ((sandbox.metadata.annotations?.[annotationKeys.traceContext] ?? "") !== "") return {};
  const trace = currentTraceContext();
  return trace === "" ? {} : { [annotationKeys.traceContext]: trace };
}

async function annotateTracked(
  context: SandboxContext,
  sandbox: Sandbox,
  pod: PodResult,
  signal: AbortSignal,
): Promise<Error | undefined> {
  const wanted = trackedAnnotation(sandbox, sandbox.metadata.annotations?.[annotationKeys.podName], pod);
  if (wanted === undefined) return undefined;
  try {
    await annotate(context, sandbox, { [annotationKeys.podName]: wanted }, signal);
    return undefined;
  } catch (error) {
    return asError(error, signal);
  }
}

/** One merge patch of annotations, for this very Sandbox: the uid keeps it off a successor of the same name. */
export async function annotate(
  { client, caches }: SandboxContext,
  sandbox: Sandbox,
  annotations: Readonly<Record<string, string | null>>,
  signal: AbortSignal,
): Promise<void> {
  if (Object.keys(annotations).length === 0) return;
  const { name, namespace = "", uid } = sandbox.metadata;
  const body = { metadata: { uid, annotations } };
  const patched = await client
    .patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal })
    .catch(ignore("NotFound"));
  if (patched === undefined) caches.sandboxes.gone(sandbox);
  else caches.sandboxes.wrote(patched);
}

/** Deletes what is ours, with preconditions; resolves with `deleted` when the Sandbox itself went. */
export async function applyTeardown(
  context: SandboxContext,
  sandbox: Sandbox,
  plan: TeardownPlan,
  signal: AbortSignal,
): Promise<{ readonly deleted: boolean; readonly errors: readonly Error[] }> {
  const { client, caches, clock } = context;
  const { namespace = "", name } = sandbox.metadata;
  const errors: Error[] = [];
  const attempt = async (work: Promise<unknown>): Promise<void> => {
    await work.catch((error: unknown) => void errors.push(asError(error, signal)));
  };
  for (const pod of plan.pods) {
    const cached = caches.pods.get(namespacedKey(namespace, pod.name));
    const removal = client
      .delete(pods, { namespace, name: pod.name }, { uid: pod.uid, signal })
      .then(() => cached !== undefined && caches.pods.deleted(cached, formatTimestamp(clock.nowMs())))
      .catch(ignore("NotFound"))
      .catch(rethrow("failed to delete pod"));
    await attempt(removal);
  }
  if (plan.service !== undefined) {
    const removal = client
      .delete(services, { namespace, name: plan.service.name }, { uid: plan.service.uid, signal })
      .catch(ignore("NotFound"))
      .catch(rethrow("failed to delete service"));
    await attempt(removal);
  }
  if (plan.deleteSandbox) {
    const removal = client
      .delete(sandboxes, { namespace, name }, { uid: uidOf(sandbox), signal })
      .catch(ignore("NotFound"))
      .catch(rethrow("failed to delete sandbox"));
    const before = errors.length;
    await attempt(removal);
    if (errors.length === before) return { deleted: true, errors: [] };
  }
  if (plan.clearTracked && errors.length === 0) {
    await attempt(annotate(context, sandbox, { [annotationKeys.podName]: null }, signal));
  }
  return { deleted: false, errors };
}

/** Writes the status if it changed; a Sandbox that is gone needs none. With `unchanged` it fails with a conflict if the Sandbox was written since it was read. */
export async function writeStatus(
  { client, caches }: SandboxContext,
  sandbox: Sandbox,
  status: SandboxStatus,
  signal: AbortSignal,
  expected: "any" | "unchanged" = "any",
): Promise<boolean> {
  const patch = planStatusPatch(sandbox.status, status);
  if (patch === undefined) return false;
  const { name, namespace = "", uid, resourceVersion } = sandbox.metadata;
  const body = { metadata: { uid, ...(expected === "unchanged" && { resourceVersion }) }, status: patch };
  try {
    const options = { subresource: "status", signal };
    caches.sandboxes.wrote(await client.patch(sandboxes, { namespace, name }, { type: "merge", body }, options));
    return true;
  } catch (error) {
    if (!isReasonOf(error, "NotFound")) throw error;
    // Until the watch brings its deletion, the cache hides it: no other pass may try to write it.
    caches.sandboxes.gone(sandbox);
    return false;
  }
}
