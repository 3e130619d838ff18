import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys } from "@agent-sandbox/api/labels";
import { pods, sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { isSandboxError, SandboxError } from "../errors/sandbox-error.ts";
import { awaitObject } from "./await-object.ts";
import type { WaitOptions } from "./create-options.ts";
import { describeFailure, judgePod, judgeSandbox } from "./verdict.ts";

/** Which Sandbox to wait for. */
export interface AwaitReadyOptions extends WaitOptions {
  readonly engine: Engine;
  readonly namespace: string;
  readonly name: string;
  /** The Sandbox as it is known; waiting begins behind it. */
  readonly known?: Sandbox;
  readonly signal?: AbortSignal | undefined;
}

/** An image of a gigabyte over a slow line takes minutes; longer than that, a user wants to know. */
export const readyTimeoutDefaultMs = 180_000;

/** A sandbox that is not up by then waits for something that only its Pod can tell. Most are up before. */
const podWatchAfterMs = 250;

/** Waits, by watch, until a Sandbox is ready; a Pod that shows why it never will ends the wait early. */
export async function awaitReady(options: AwaitReadyOptions): Promise<Sandbox> {
  const { engine, namespace, name, known, onProgress, readyTimeoutMs = readyTimeoutDefaultMs, signal } = options;
  // The watch begins behind what is known: that is judged here.
  const verdict = known === undefined ? undefined : judgeSandbox(known);
  if (known !== undefined && verdict?.kind === "done") return known;
  if (verdict?.kind === "failed") throw await withPodsReason(options, verdict.error);
  let last = "waiting for the controller";
  const onWaiting = (why: string): void => {
    if (why !== last) onProgress?.(why);
    last = why;
  };
  const over = new AbortController();
  const timer = setTimeout(() => {
    const message = `sandbox ${namespace}/${name} was not ready within ${readyTimeoutMs} ms; last seen: ${last}`;
    over.abort(new SandboxError("ready-timeout", message));
  }, readyTimeoutMs);
  const podTimer = setTimeout(() => void watchPod(options, over, onWaiting), podWatchAfterMs);
  const both = signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]);
  try {
    const { client } = engine;
    const resourceVersion = known?.metadata.resourceVersion;
    return await awaitObject({
      client,
      resource: sandboxes,
      namespace,
      name,
      resourceVersion,
      judge: judgeSandbox,
      onWaiting,
      signal: both,
    });
  } catch (error) {
    throw await withPodsReason(options, error);
  } finally {
    clearTimeout(timer);
    clearTimeout(podTimer);
    over.abort(new Error("the wait is over"));
  }
}

/** A Sandbox only says that its Pod failed; the Pod says why. */
async function withPodsReason({ engine, namespace, name, known }: AwaitReadyOptions, error: unknown): Promise<unknown> {
  if (!isSandboxError(error, "sandbox-failed")) return error;
  const pod = await engine.client.get(pods, { namespace, name: podNameOf(known, name) }).catch(() => undefined);
  const why = pod === undefined ? undefined : describeFailure(pod);
  return why === undefined ? error : new SandboxError(error.code, `${error.message}: ${why}`, { cause: error });
}

function podNameOf(known: Sandbox | undefined, name: string): string {
  return known?.metadata.annotations?.[annotationKeys.podName] ?? name;
}

/** Ends the wait with what the Pod tells; a Pod that cannot be watched tells nothing. */
async function watchPod(
  options: AwaitReadyOptions,
  over: AbortController,
  onWaiting: (why: string) => void,
): Promise<void> {
  const { engine, namespace, name, known, signal } = options;
  try {
    await awaitObject({
      client: engine.client,
      resource: pods,
      namespace,
      name: podNameOf(known, name),
      judge: (pod) => judgePod(pod, engine.kind === "local"),
      onDeleted: () => ({ kind: "waiting", why: "the pod is being replaced" }),
      onWaiting,
      signal: signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]),
    });
  } catch (error) {
    if (error instanceof SandboxError && error.code !== "permission-denied" && !over.signal.aborted) {
      over.abort(new SandboxError(error.code, `sandbox ${namespace}/${name}: ${error.message}`));
    }
  }
}
