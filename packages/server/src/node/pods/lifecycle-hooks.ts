import type { LifecycleHandler, Pod } from "@agent-sandbox/api";
import { delay } from "@agent-sandbox/kube";
import { checkProbe } from "../probes/probe-check.ts";
import type { RunningContainer } from "./container-probes.ts";
import { fieldPathOf } from "./field-path.ts";
import type { PodContext } from "./pod-context.ts";

/** How long a postStart hook may take; the kubelet sets no limit, but a hook that hangs must not be forgotten. */
const postStartTimeoutMs = 600_000;

/** Runs a container's postStart hook in the background; a hook that fails kills the container, as on Kubernetes. */
export function runPostStart(context: PodContext, running: RunningContainer): void {
  const { pod, container, hostId } = running;
  const hook = container.lifecycle?.postStart;
  if (hook === undefined) return;
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(postStartTimeoutMs)]);
  void runHook(context, running, hook, signal).then(async (failure) => {
    if (failure === undefined || context.signal.aborted) return;
    const fieldPath = fieldPathOf(pod, container);
    context.events.record({ object: pod, type: "Warning", reason: "FailedPostStartHook", message: failure, fieldPath });
    await context.host.killContainer({ id: hostId, signal: "KILL", all: true }).catch((error: unknown) => {
      context.logger.warn({ err: error, hostId }, "container whose postStart hook failed could not be killed");
    });
  });
}

/** Runs a container's preStop hook; resolves when it is over, well or not. The signal is the grace period's. */
export async function runPreStop(context: PodContext, running: RunningContainer, signal: AbortSignal): Promise<void> {
  const { pod, container } = running;
  const hook = container.lifecycle?.preStop;
  if (hook === undefined) return;
  const failure = await runHook(context, running, hook, signal);
  if (failure === undefined || signal.aborted) return;
  const fieldPath = fieldPathOf(pod, container);
  context.events.record({ object: pod, type: "Warning", reason: "FailedPreStopHook", message: failure, fieldPath });
}

/** Undefined when the hook went well, else what went wrong. */
async function runHook(
  context: PodContext,
  { pod, container, hostId }: RunningContainer,
  hook: LifecycleHandler,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (hook.sleep !== undefined) {
    await delay(context.clock, hook.sleep.seconds * 1000, signal).catch(() => undefined);
    return undefined;
  }
  const ports = new Map(
    (container.ports ?? []).flatMap(({ name, containerPort }) =>
      name === undefined ? [] : [[name, containerPort] as const],
    ),
  );
  const target = {
    address: addressOf(context, pod),
    ports,
    exec: (command: readonly string[], stop: AbortSignal) => context.runCommand(hostId, command, stop),
  };
  const result = await checkProbe(hook, target, context.dialers, signal);
  return result.isOk ? undefined : result.message;
}

function addressOf({ records }: PodContext, pod: Pod): string {
  return records.get(pod.metadata.uid ?? "")?.address ?? "";
}
