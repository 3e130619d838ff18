import type { Pod } from "@agent-sandbox/api";
import { formatTimestamp } from "@agent-sandbox/api";
import type { ContainerState } from "../host/container.ts";
import { stopProbes } from "./container-probes.ts";
import { fieldPathOf } from "./field-path.ts";
import { type LimitHit, limitHit } from "./limit-hit.ts";
import type { PodContext } from "./pod-context.ts";
import { type ContainerRecord, type RunEnd, withContainer } from "./pod-record.ts";
import { settleRestore } from "./pod-restore.ts";
import { needsPause } from "./prepare-pod.ts";
import { countCrash } from "./restart-backoff.ts";
import { readTerminationMessage } from "./termination-message.ts";

/** The code Kubernetes shows for a container whose end was not seen. */
const exitCodeUnknown = 137;

/** Writes down how a run ended; whatever follows from it is another step. */
export async function noteEnd(context: PodContext, pod: Pod, name: string, signal: AbortSignal): Promise<void> {
  const { records, exits } = context;
  await settleRestore(context, pod, signal);
  const record = records.get(pod.metadata.uid ?? "");
  const run = record?.containers[name];
  if (record === undefined || run === undefined || run.end !== undefined) return;
  stopProbes(context, run.hostId);
  context.daemons.forget(run.hostId);
  if (record.pauseId !== undefined && !needsPause(pod)) void endSandbox(context, record.pauseId, signal);
  const hit = await limitHit(context, pod, { record, run }, signal);
  const message = await readTerminationMessage(context, pod, run);
  const end = runEnd({ run, state: exits.states.get(run.hostId), hit, message, nowMs: context.clock.nowMs() });
  if (hit !== undefined && end.reason === hit.reason) tellHit(context, pod, name, hit);
  const runMs = Date.parse(end.finishedAt) - Date.parse(end.startedAt ?? end.finishedAt);
  const { stopping: _stopping, ...rest } = run;
  await records.save(withContainer(record, { ...rest, end, crashes: countCrash(run.crashes, runMs) }));
}

function tellHit({ events }: PodContext, pod: Pod, name: string, { reason, message }: LimitHit): void {
  const container = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].find(
    (spec) => spec.name === name,
  );
  const fieldPath = container === undefined ? {} : { fieldPath: fieldPathOf(pod, container) };
  events.record({ object: pod, type: "Warning", reason, message, ...fieldPath });
}

/** A sandbox made ahead is for one run: it ends while that run's end is written down. Its removal finds out whether it has. */
async function endSandbox({ host, logger }: PodContext, id: string, signal: AbortSignal): Promise<void> {
  await host.killContainer({ id, signal: "KILL" }, signal).catch((error: unknown) => {
    if (!signal.aborted) logger.debug({ err: error, id }, "sandbox not ended before it is removed");
  });
}

/** What runsc ends with when the sandbox it waits for is killed under it. */
const runtimeLostSandbox = 128;

interface EndQuestion {
  readonly run: ContainerRecord;
  readonly state: ContainerState | undefined;
  /** A limit of the pod that was hit while it ran. */
  readonly hit: LimitHit | undefined;
  readonly message: string | undefined;
  readonly nowMs: number;
}

/** What the runtime said, in the words of a container status. Exported for tests. */
export function runEnd({ run, state, hit, message, nowMs }: EndQuestion): RunEnd {
  const exit = state?.exit;
  const finishedAt = formatTimestamp(exit === undefined ? nowMs : Date.parse(exit.finishedAt));
  const shared = { finishedAt, hostId: run.hostId, startedAt: run.startedAt ?? finishedAt };
  // The kernel ends the whole sandbox at a limit, and then nothing is left that could tell a code.
  const isKilled =
    exit?.exitCode === undefined || exit.exitCode === exitCodeUnknown || exit.exitCode === runtimeLostSandbox;
  if (hit !== undefined && isKilled)
    return { ...shared, exitCode: exitCodeUnknown, reason: hit.reason, message: lastWords(hit.message, message) };
  if (exit?.exitCode === undefined) {
    const text = "The container could not be located when its end was looked for";
    return { ...shared, exitCode: exitCodeUnknown, reason: "ContainerStatusUnknown", message: message ?? text };
  }
  const { exitCode } = exit;
  const reason = exitCode === 0 ? "Completed" : "Error";
  return { ...shared, exitCode, reason, ...(message !== undefined && { message }) };
}

/** The node's own line comes first: the rest is the sandbox's, which may write what it likes. */
function lastWords(own: string, theirs: string | undefined): string {
  return theirs === undefined ? own : `${own}\n${theirs}`;
}
