import type { Pod } from "@agent-sandbox/api";
import { stopProbes } from "./container-probes.ts";
import { fieldPathOf } from "./field-path.ts";
import { runPreStop } from "./lifecycle-hooks.ts";
import type { PodContext } from "./pod-context.ts";
import { withContainer } from "./pod-record.ts";

/** One container to stop. */
export interface StopRequest {
  readonly pod: Pod;
  readonly container: string;
  readonly graceMs: number;
  readonly reason: string;
}

/** Asks a container to end: preStop hook, then its stop signal, both within the grace period. Returns at once. */
export async function stopContainer(
  context: PodContext,
  { pod, container: name, graceMs, reason }: StopRequest,
): Promise<void> {
  const { records, clock, events } = context;
  // Before the program gets its signal: a connection from here on is held for the sandbox's next start, where traffic wakes it.
  if (pod.metadata.deletionTimestamp !== undefined) await context.rules.apply();
  const record = records.get(pod.metadata.uid ?? "");
  const run = record?.containers[name];
  if (record === undefined || run === undefined || run.end !== undefined) return;
  const isShortened = run.stopping !== undefined;
  const sinceMs = run.stopping?.sinceMs ?? clock.nowMs();
  await records.save(withContainer(record, { ...run, stopping: { sinceMs, graceMs, reason } }));
  stopProbes(context, run.hostId);
  if (isShortened) return;
  const container = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].find(
    (spec) => spec.name === name,
  );
  if (container !== undefined) {
    const message = reason.includes("probe")
      ? `Container ${name} failed ${reason.split(" ")[0] ?? ""} probe, will be restarted`
      : `Stopping container ${name}`;
    events.record({ object: pod, type: "Normal", reason: "Killing", message, fieldPath: fieldPathOf(pod, container) });
    const grace = AbortSignal.any([context.signal, AbortSignal.timeout(Math.max(1, graceMs))]);
    void runPreStop(context, { pod, container, hostId: run.hostId }, grace).then(() =>
      sendStopSignal(context, run.hostId, run.imageId),
    );
    return;
  }
  await sendStopSignal(context, run.hostId, run.imageId);
}

/** The image's stop signal, else TERM. Failures are logged: the end of the grace period kills anyway. */
export async function sendStopSignal(context: PodContext, hostId: string, imageReference: string): Promise<void> {
  const image = await context.images.ready(imageReference).catch(() => undefined);
  const signal = (image?.config.stopSignal ?? "TERM").replace(/^SIG/, "");
  await context.host
    .killContainer({ id: hostId, signal: /^[A-Z0-9+-]{1,12}$/.test(signal) ? signal : "TERM" })
    .catch((error: unknown) => {
      context.logger.warn({ err: error, hostId }, "stop signal not delivered");
    });
}

/** Ends a container whose grace period is over. */
export async function killContainer(
  context: PodContext,
  podUid: string,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  const { records, host } = context;
  const record = records.get(podUid);
  const run = record?.containers[name];
  if (record === undefined || run === undefined || run.end !== undefined) return;
  await host.killContainer({ id: run.hostId, signal: "KILL", all: true }, signal);
  // The verb has thawed it: nothing that stands still can end.
  if (context.sleep.of(podUid).isFrozen) context.sleep.set(podUid, { isFrozen: false });
  const stopping = run.stopping ?? { sinceMs: context.clock.nowMs(), graceMs: 0, reason: "killed" };
  await records.save(withContainer(record, { ...run, stopping: { ...stopping, killed: true } }));
}
