import type { Pod, Sandbox } from "@agent-sandbox/api";
import {
  formatTimestamp,
  isNamedBy,
  isReasonOf,
  keyOf,
  namespacedKey,
  pods,
  runtimeClasses,
  sandboxes,
} from "@agent-sandbox/api";
import { type PodAction, type PodObserved, type PodPlan, planPod, trackedPodName } from "../sandbox-pod/plan.ts";
import type { MetadataPatch } from "../sandbox-pod/pod-metadata.ts";
import { asError, readLive, rethrow } from "./apply-children.ts";
import { type PassMemory, type SandboxContext, sandboxFieldManager } from "./context.ts";

/** A pass that decided on what the API server has since changed is done again at once. */
const lookAgainMs = 1;

/** How the Pod step ended. */
export interface PodResult {
  /** The Pod after the step, as far as the server told us. */
  readonly pod: Pod | undefined;
  readonly plan: PodPlan;
  readonly error?: Error;
  /** A metadata change was put off; come back after this long. */
  readonly deferredMs?: number;
  readonly created?: boolean;
  /** Why no Pod can be made as the spec says. */
  readonly invalid?: string;
}

/** What the Pod step works on. */
export interface PodStep {
  readonly observed: PodObserved;
  readonly plan: PodPlan;
  readonly memory: PassMemory;
}

/** Carries out the Pod's part. A refusal and a failed write both come back as `error`. */
export async function applyPod(context: SandboxContext, step: PodStep, signal: AbortSignal): Promise<PodResult> {
  const { plan, observed } = step;
  if (plan.failure !== undefined) return { pod: plan.pod, plan, error: new Error(plan.failure.message) };
  try {
    if (plan.action?.do === "create-pod") return await createPod(context, step, plan.action.pod, signal);
    if (plan.action?.do === "delete-pod") return await deletePod(context, step, plan.action, signal);
    if (plan.action?.do === "delete-unnamed-pod") return await deleteUnnamed(context, step, plan.action.pod, signal);
    if (plan.action?.do === "patch-pod") return await patchPod(context, step, plan.action, signal);
    step.memory.writeBehind.clear(keyOf(observed.sandbox));
    return { pod: plan.pod, plan };
  } catch (error) {
    return { pod: plan.pod, plan, error: asError(error, signal) };
  }
}

async function createPod(context: SandboxContext, step: PodStep, pod: Pod, signal: AbortSignal): Promise<PodResult> {
  const { sandbox } = step.observed;
  const tracked = trackedPodName(sandbox);
  if (tracked !== sandbox.metadata.name) {
    // The tracked Pod has another name, so its existence would not stop the create: look past the cache first.
    const wanted = { metadata: { name: tracked, namespace: sandbox.metadata.namespace ?? "" } };
    const found = await readLive(context, pods, context.caches.pods, wanted, signal).catch(rethrow("pod get failed"));
    if (found !== undefined) return replan(context, step, found, signal);
  }
  try {
    const created = await context.client.create(pods, pod, { fieldManager: sandboxFieldManager, signal });
    context.caches.pods.wrote(created);
    step.memory.made.note(sandbox, created);
    context.metrics.podCreations.inc({ namespace: sandbox.metadata.namespace ?? "" });
    return { pod: created, plan: step.plan, created: true };
  } catch (error) {
    const invalid = await missingRuntimeClass(context, pod, error, signal);
    if (invalid !== undefined) return { pod: undefined, plan: step.plan, error: asError(error, signal), invalid };
    if (!isReasonOf(error, "AlreadyExists")) throw error;
  }
  const found = await readLive(context, pods, context.caches.pods, pod, signal).catch(
    rethrow("pod already exists but failed to fetch"),
  );
  if (found === undefined)
    throw new Error(`pod already exists but failed to fetch: pod "${pod.metadata.name}" is gone`);
  return replan(context, step, found, signal);
}

/** A refusal says in words only that the runtime class is not there, so it is looked for. It is tried again all the same: the class may be installed. */
async function missingRuntimeClass(
  { client }: SandboxContext,
  { spec }: Pod,
  error: unknown,
  signal: AbortSignal,
): Promise<string | undefined> {
  const name = spec?.runtimeClassName;
  if (name === undefined || !isReasonOf(error, "Forbidden")) return undefined;
  try {
    await client.get(runtimeClasses, { name }, { signal });
    return undefined;
  } catch (failure) {
    // Without the right to look nothing is known of it.
    if (isReasonOf(failure, "Forbidden")) return undefined;
    if (!isReasonOf(failure, "NotFound")) throw failure;
    return `RuntimeClass "${name}" does not exist; install it on the nodes, or name another in spec.podTemplate.spec.runtimeClassName`;
  }
}

/** The cache was behind: decide again with the Pod that is really there. */
function replan(context: SandboxContext, step: PodStep, found: Pod, signal: AbortSignal): Promise<PodResult> {
  const observed = { ...step.observed, tracked: found, createBlocked: true };
  return applyPod(context, { ...step, observed, plan: planPod(observed) }, signal);
}

async function deletePod(
  context: SandboxContext,
  { observed, plan }: PodStep,
  { name, uid, resourceVersion }: Extract<PodAction, { do: "delete-pod" }>,
  signal: AbortSignal,
): Promise<PodResult> {
  const { client, caches, clock, metrics } = context;
  const namespace = observed.sandbox.metadata.namespace ?? "";
  try {
    const version = resourceVersion === undefined ? {} : { resourceVersion };
    await client.delete(pods, { namespace, name }, { uid, ...version, signal });
  } catch (error) {
    if (await isReplaced(context, { namespace, name, uid }, error, signal)) return { pod: undefined, plan };
    // It is the same Pod in another state: the next pass decides by that.
    const isChanged = resourceVersion !== undefined && isReasonOf(error, "Conflict");
    return isChanged ? { pod: plan.pod, plan, deferredMs: lookAgainMs } : rethrow("failed to delete pod")(error);
  }
  if (plan.recovery.kind === "replace") metrics.podReplacements.inc({ namespace });
  if (plan.pod !== undefined) caches.pods.deleted(plan.pod, formatTimestamp(clock.nowMs()));
  return { pod: plan.pod, plan };
}

/** Takes away a Pod that says it is the Sandbox's, unless the API server knows that the Sandbox names it and the cache is behind. */
async function deleteUnnamed(
  context: SandboxContext,
  step: PodStep,
  pod: Pod,
  signal: AbortSignal,
): Promise<PodResult> {
  const { observed, plan } = step;
  const live = await readLive(context, sandboxes, context.caches.sandboxes, observed.sandbox, signal);
  const isStale = live === undefined || live.metadata.uid !== observed.sandbox.metadata.uid;
  if (isStale || isNamedBy(pod, live)) return { pod: undefined, plan, deferredMs: lookAgainMs };
  const { name, uid = "" } = pod.metadata;
  const removal = { do: "delete-pod", name, uid } as const;
  const { pod: _pod, ...result } = await deletePod(context, { ...step, plan: { ...plan, pod } }, removal, signal);
  return { ...result, pod: undefined, plan };
}

/** Whether the Pod we meant no longer exists: it is gone, or another has its name. */
async function isReplaced(
  context: SandboxContext,
  { namespace, name, uid }: { namespace: string; name: string; uid: string },
  error: unknown,
  signal: AbortSignal,
): Promise<boolean> {
  if (!isReasonOf(error, "NotFound") && !isReasonOf(error, "Conflict")) return false;
  const cached = context.caches.pods.get(namespacedKey(namespace, name));
  const found = await readLive(context, pods, context.caches.pods, { metadata: { name, namespace } }, signal);
  if (found === undefined && cached !== undefined) context.caches.pods.gone(cached);
  return found === undefined || found.metadata.uid !== uid;
}

async function patchPod(
  { client, caches }: SandboxContext,
  { observed, plan, memory: { writeBehind, made } }: PodStep,
  action: Extract<PodAction, { do: "patch-pod" }>,
  signal: AbortSignal,
): Promise<PodResult> {
  const { sandbox, nowMs } = observed;
  const key = keyOf(sandbox);
  const deferredMs = action.adopt === undefined ? writeBehind.remainingMs(key, nowMs) : 0;
  if (deferredMs > 0) return { pod: plan.pod, plan, deferredMs };
  const metadata = { ...patchBody(action.metadata), uid: plan.pod?.metadata.uid, ...action.adopt };
  const patched = await client
    .patch(
      pods,
      { namespace: sandbox.metadata.namespace ?? "", name: action.name },
      { type: "merge", body: { metadata } },
      { signal },
    )
    .catch(rethrow("failed to patch pod"));
  caches.pods.wrote(patched);
  if (action.adopt !== undefined) made.note(sandbox, patched);
  writeBehind.clear(key);
  return { pod: patched, plan };
}

function patchBody({ labels, annotations }: MetadataPatch): MetadataPatch {
  return { ...(labels === undefined ? {} : { labels }), ...(annotations === undefined ? {} : { annotations }) };
}

/** The `pod-name` annotation to write after the step, or undefined when it is right already. */
export function trackedAnnotation(
  sandbox: Sandbox,
  present: string | undefined,
  result: PodResult,
): string | null | undefined {
  const wanted = result.plan.tracked;
  if (wanted === undefined) return undefined;
  if (wanted === null) return present === undefined ? undefined : null;
  if (result.error !== undefined) return undefined;
  return present === wanted || sandbox.metadata.deletionTimestamp !== undefined ? undefined : wanted;
}
