import type { Container, Pod } from "@agent-sandbox/api";
import { delay } from "@agent-sandbox/kube";
import type { PodContext } from "./pod-context.ts";
import { isInjected, sandboxdPort } from "./sandboxd-launch.ts";
import { fieldPathOf, servingContainer } from "./start-container.ts";

/** The daemon listens within milliseconds of its start; one that does not by then never will. */
const answerWithinMs = 10_000;

/** Pauses between dials: the first is short, because most daemons are there at once. */
const pauseFirstMs = 2;
const pauseMaxMs = 50;

/** A dial that is neither taken nor refused by then is made again. */
const dialTimeoutMs = 250;

/**
 * Waits, as the last part of a start, until the daemon answers: whoever sees the pod ready may send traffic at once.
 * Ends early with the container.
 */
export async function awaitDaemon(
  context: PodContext,
  { pod, container }: { readonly pod: Pod; readonly container: Container },
  signal: AbortSignal,
): Promise<void> {
  if (!isInjected(pod) || servingContainer(pod) !== container.name) return;
  const { records, exits, events } = context;
  const record = records.get(pod.metadata.uid ?? "");
  const run = record?.containers[container.name];
  if (record?.address === undefined || run === undefined || run.end !== undefined) return;
  const over = AbortSignal.any([signal, exits.endOf(run.hostId)]);
  const hasAnswered = await dialUntilAnswered(context, record.address, over);
  signal.throwIfAborted();
  if (hasAnswered || over.aborted) return;
  const message = `the daemon inside does not answer on port ${sandboxdPort}`;
  events.record({
    object: pod,
    type: "Warning",
    reason: "Unhealthy",
    message,
    fieldPath: fieldPathOf(pod, container),
  });
}

async function isAnswered({ dialers }: PodContext, address: string, over: AbortSignal): Promise<boolean> {
  const signal = AbortSignal.any([over, AbortSignal.timeout(dialTimeoutMs)]);
  const dialled = await dialers.tcp(address, sandboxdPort, signal).catch(() => undefined);
  return dialled?.isOk === true;
}

async function dialUntilAnswered(context: PodContext, address: string, over: AbortSignal): Promise<boolean> {
  const { clock } = context;
  const endMs = clock.nowMs() + answerWithinMs;
  let pauseMs = pauseFirstMs;
  while (!over.aborted && clock.nowMs() < endMs) {
    if (await isAnswered(context, address, over)) return true;
    await delay(clock, pauseMs, over).catch(() => undefined);
    pauseMs = Math.min(pauseMs * 2, pauseMaxMs);
  }
  return false;
}
