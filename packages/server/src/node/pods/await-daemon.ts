import type { Container, Pod } from "@agent-sandbox/api";
import { delay } from "@agent-sandbox/kube";
import type { PodContext } from "./pod-context.ts";
import { isInjected, sandboxdPort, sandboxdTarget } from "./sandboxd-launch.ts";
import { fieldPathOf, servingContainer } from "./start-container.ts";

/** The daemon listens within milliseconds of its start; one that does not by then never will. */
const answerWithinMs = 10_000;

/** Pauses between dials: the first is short, because most daemons are there at once. */
const pauseFirstMs = 2;
const pauseMaxMs = 50;

/** A dial that is neither taken nor refused by then is made again. */
const dialTimeoutMs = 250;

/**
 * An entrypoint that cannot do its work ends within the time that its container took to start: a busy machine is slow
 * at both. What lasts longer has started.
 */
const settleMinMs = 250;
const settleMaxMs = 2_000;

/**
 * Waits, as the last part of a start, until the daemon answers: whoever sees the pod ready may send traffic at once.
 * Ends early with the container. A Sandbox's own entrypoint is also given the time to fail.
 */
export async function awaitDaemon(
  context: PodContext,
  { pod, container, sinceMs }: { readonly pod: Pod; readonly container: Container; readonly sinceMs: number },
  signal: AbortSignal,
): Promise<void> {
  if (!isInjected(pod) || servingContainer(pod) !== container.name) return;
  const { records, exits, events } = context;
  const record = records.get(pod.metadata.uid ?? "");
  const run = record?.containers[container.name];
  if (record?.address === undefined || run === undefined || run.end !== undefined) return;
  const over = AbortSignal.any([signal, exits.endOf(run.hostId)]);
  const hasAnswered = await dialUntilAnswered(context, record.address, over);
  const isOwnEntrypoint = run.process.argv[0] !== sandboxdTarget;
  if (hasAnswered && record.sandboxUid !== undefined && isOwnEntrypoint)
    await settle(context, { address: record.address, sinceMs }, over);
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

/** The daemon ends with its entrypoint, and the container some time later: then that end is waited for, to be reported first. */
async function settle(
  context: PodContext,
  { address, sinceMs }: { readonly address: string; readonly sinceMs: number },
  over: AbortSignal,
): Promise<void> {
  const { clock } = context;
  const settleMs = Math.min(Math.max(clock.nowMs() - sinceMs, settleMinMs), settleMaxMs);
  // The end of the container ends a pause; that it rejects then says nothing new.
  await delay(clock, settleMs, over).catch(() => undefined);
  if (over.aborted || (await isAnswered(context, address, over))) return;
  await delay(clock, answerWithinMs, over).catch(() => undefined);
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
