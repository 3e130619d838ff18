import type { Pod, Sandbox } from "@agent-sandbox/api";
import { annotationKeys, uidOf } from "@agent-sandbox/api";
import { delay } from "@agent-sandbox/kube";
import { HostError } from "../host/host-error.ts";
import type { RestoreSource } from "../host/saved-state.ts";
import { podCgroup } from "../pod-spec/resources.ts";
import type { PodContext } from "./pod-context.ts";
import type { PodRecord, RestoreRecord } from "./pod-record.ts";
import { savedIdOf } from "./pod-sleep.ts";
import { takeOnName } from "./take-on-name.ts";

/** How long one question about the end of a restore lasts. */
const waitMs = 60_000;

/**
 * How long the end of a restore is waited for once a container has ended. A sentry that is gone is seen by its helper some milliseconds after its container's end, and only the helper knows
 * why it went; where the others run on, this is longer than a disk takes for the pages of a GiB.
 */
const settleMs = 10_000;

/** Before a host that is away, or a restore that waits for its last container, is asked again. */
const askAgainMs = 100;

/** The record of the pod whose memory was saved for a Sandbox, if one is kept. */
function hibernatedFor({ records }: Pick<PodContext, "records">, sandboxUid: string): PodRecord | undefined {
  return records.all().find((record) => record.isHibernated === true && record.sandboxUid === sandboxUid);
}

/** The hibernated pod whose directories the next pod of a Sandbox takes over, with its memory. */
export function inheritedBy(context: Pick<PodContext, "records">, sandbox: Sandbox): PodRecord | undefined {
  return wantsMemory(sandbox) ? hibernatedFor(context, uidOf(sandbox)) : undefined;
}

/** Whether a Sandbox has saved memory and has not given it up. */
function wantsMemory({ status, metadata }: Sandbox): boolean {
  const wish = status?.sleep;
  return wish?.savedAt !== undefined && metadata.annotations?.[annotationKeys.coldStart] !== wish.id;
}

/**
 * What a new pod of a Sandbox is restored from; undefined where it starts from its files. What was saved and is not wanted any more is discarded first: it would not fit the files
 * after a start without it. Preconditions: the Sandbox names the pod.
 */
export async function planRestore(
  context: PodContext,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<RestoreRecord | undefined> {
  const uid = uidOf(sandbox);
  const wish = sandbox.status?.sleep;
  const kept = hibernatedFor(context, uid);
  if (!wantsMemory(sandbox)) {
    if (kept !== undefined || wish?.savedAt !== undefined) await discardSaved(context, uid, signal);
    return undefined;
  }
  const saved = savedIdOf(uid);
  const state = (await context.host.listSaved(signal)).find(({ id }) => id === saved);
  const refused = (message: string): RestoreRecord => ({ saved, state: "failed", message, runs: {} });
  if (state === undefined) return refused("the saved memory is not on this node");
  if (kept === undefined) return refused("the record of the pod whose memory was saved is lost");
  if (state.unusable !== undefined) return refused(state.unusable);
  const runs = Object.values(kept.containers).filter(({ end }) => end === undefined);
  const root = state.containers.find(
    (container) => container.root && !runs.some(({ hostId }) => hostId === container.id),
  );
  return {
    saved,
    state: "restoring",
    from: kept.uid,
    ...(root !== undefined && { root: root.id }),
    runs: Object.fromEntries(runs.map(({ name, hostId, attempt }) => [name, { hostId, attempt }])),
  };
}

/** Gives up what was saved for a Sandbox: its memory first, so that nothing is restored without the directories that go after it. */
export async function discardSaved(context: PodContext, sandboxUid: string, signal: AbortSignal): Promise<void> {
  const { host, records } = context;
  await host.discardSaved({ id: savedIdOf(sandboxUid) }, signal);
  const kept = hibernatedFor(context, sandboxUid);
  if (kept === undefined) return;
  for (const id of soleDirs(context, kept)) await host.removeEmptyDir({ id }, signal);
  await records.remove(kept.uid);
}

/** The emptyDirs of a pod that no other has: those of a hibernated one are also those of the pod that is restored from it. */
export function soleDirs({ records }: Pick<PodContext, "records">, { uid, emptyDirs }: PodRecord): string[] {
  const shared = new Set(records.all().flatMap((other) => (other.uid === uid ? [] : other.emptyDirs)));
  return emptyDirs.filter((id) => !shared.has(id));
}

/** What a container is started from, while its pod is being restored and it has not been started in it. */
export function restoreSourceOf({ restore, containers }: PodRecord, name: string): RestoreSource | undefined {
  const run =
    restore?.state === "restoring" && containers[name]?.startedAt === undefined ? restore.runs[name] : undefined;
  return run === undefined || restore === undefined ? undefined : { saved: restore.saved, container: run.hostId };
}

/** Whether an error says that the memory cannot be used, and not that the machine is busy or short of something. */
function isRestoreRefused(error: HostError): boolean {
  const refusals: readonly string[] = [
    "restore-refused",
    "restore-failed",
    "not-found",
    "invalid-argument",
    "unsupported",
  ];
  return refusals.includes(error.code);
}

/** Resolves with false, and writes down why, where a start from saved memory is refused; a start without it rejects as it did. */
export async function orRefused(context: PodContext, record: PodRecord, start: Promise<void>): Promise<boolean> {
  try {
    await start;
    return true;
  } catch (error) {
    if (record.restore?.state !== "restoring" || !(error instanceof HostError) || !isRestoreRefused(error)) throw error;
    await failRestore(context, record.uid, error.message);
    return false;
  }
}

/** Writes down that a pod could not be restored; what was saved stays. */
async function failRestore({ records }: PodContext, uid: string, message: string): Promise<void> {
  const record = records.get(uid);
  if (record?.restore === undefined) return;
  await records.save({ ...record, restore: { ...record.restore, state: "failed", message } });
}

/**
 * Follows the restore of a pod until all of its memory has been read; what was saved is discarded only then. Bound: one watch for each pod that is being restored.
 */
export async function watchRestore(context: PodContext, pod: Pod): Promise<void> {
  const { records, restores, wake, signal } = context;
  const uid = pod.metadata.uid ?? "";
  if (records.get(uid)?.restore?.state !== "restoring" || restores.has(uid)) return;
  restores.add(uid);
  try {
    while (!signal.aborted && records.get(uid)?.restore?.state === "restoring") {
      if (await hasEndedRestore(context, pod)) break;
      await delay(context.clock, askAgainMs, signal).catch(() => undefined);
    }
  } finally {
    restores.delete(uid);
  }
  wake({ namespace: pod.metadata.namespace ?? "", name: pod.metadata.name });
}

/**
 * A container has ended. If its pod was still being restored, that has failed, unless the host says that all memory had been read: nothing is started again in place of
 * it, because what was saved does not fit the files of a sandbox that began anew.
 */
export async function settleRestore(context: PodContext, pod: Pod, signal: AbortSignal): Promise<void> {
  const uid = pod.metadata.uid ?? "";
  const record = context.records.get(uid);
  if (record?.restore?.state !== "restoring") return;
  const id = rootOf(record) ?? "";
  try {
    const how = await context.host.waitRestored({ id, waitMs: settleMs }, signal);
    if (how === "restored") await finishRestore(context, pod, record, signal);
    else await failRestore(context, uid, "the sandbox ended before all of its memory was read");
  } catch (error) {
    if (!(error instanceof HostError) || error.code === "unavailable") throw error;
    await failRestore(context, uid, error.message);
  }
}

function rootOf({ pauseId, containers, restore }: PodRecord): string | undefined {
  return pauseId ?? Object.values(containers).find(({ name }) => restore?.runs[name] !== undefined)?.hostId;
}

async function hasEndedRestore(context: PodContext, pod: Pod): Promise<boolean> {
  const { host, records, signal, logger } = context;
  const uid = pod.metadata.uid ?? "";
  const record = records.get(uid);
  const id = record && rootOf(record);
  if (record === undefined || id === undefined) return false;
  try {
    if ((await host.waitRestored({ id, waitMs }, signal)) === undefined) return false;
    await finishRestore(context, pod, record, signal);
    return true;
  } catch (error) {
    if (signal.aborted) return true;
    if (!(error instanceof HostError)) throw error;
    if (error.code === "restore-failed") {
      await failRestore(context, uid, error.message);
      return true;
    }
    logger.warn({ err: error, uid }, "the end of a restore is not known; it is asked again");
    return false;
  }
}

/** Each step may be repeated: an agent that is killed between two of them asks again, and the answer is the same. */
async function finishRestore(context: PodContext, pod: Pod, record: PodRecord, signal: AbortSignal): Promise<void> {
  const { host, records, config } = context;
  // The limit was left off, because reading pages under a tight one takes ten times as long.
  await host.ensureCgroup(podCgroup(pod, { id: record.cgroup, limits: config.limits }), signal);
  if (record.restore === undefined) return;
  if (record.restore.isShared === true) await takeOnName(context, pod, record, signal);
  else await host.discardSaved({ id: record.restore.saved }, signal);
  const latest = records.get(record.uid) ?? record;
  await records.save({ ...latest, restore: { ...record.restore, state: "restored" } });
  // Its directories are this pod's from here on.
  if (record.restore.from !== undefined) await records.remove(record.restore.from);
}
