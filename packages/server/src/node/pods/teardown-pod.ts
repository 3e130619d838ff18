import { stopProbes } from "./container-probes.ts";
import type { PodContext } from "./pod-context.ts";
import type { PodRecord } from "./pod-record.ts";
import { soleDirs } from "./pod-restore.ts";
import { discardClones } from "./snapshot-start.ts";

/**
 * Ends what runs of a pod and lets go of its volumes: the next pod that uses them waits for that. Every verb is
 * idempotent and the record is rewritten last, so that an interrupted teardown is done again from the start.
 */
export async function teardownPod(context: PodContext, record: PodRecord, signal: AbortSignal): Promise<void> {
  const { host, records, exits, daemons, waiting, sleep } = context;
  waiting.postpone();
  const runs = Object.values(record.containers);
  for (const { hostId } of runs) stopProbes(context, hostId);
  // Deleting the root of a sandbox ends all that joined it, so that it goes first.
  if (record.pauseId !== undefined) await host.deleteContainer({ id: record.pauseId }, signal);
  await Promise.all(runs.map(({ hostId }) => host.deleteContainer({ id: hostId }, signal)));
  for (const { hostId } of runs) {
    exits.forget(hostId);
    daemons.forget(hostId);
  }
  if (record.pauseId !== undefined) exits.forget(record.pauseId);
  const { saved } = sleep.of(record.uid);
  if (sleep.isStill(record.uid)) sleep.set(record.uid, { isFrozen: false, ...(saved !== undefined && { saved }) });
  const shared = new Set(records.all().flatMap((other) => (other.uid === record.uid ? [] : other.volumes)));
  await Promise.all(record.volumes.filter((id) => !shared.has(id)).map((id) => host.releaseVolume({ id }, signal)));
  const latest = records.get(record.uid) ?? record;
  const { pauseId: _pauseId, ...rest } = latest;
  const leases = saved === undefined ? {} : { leases: latest.leases ?? latest.volumes };
  await records.save({ ...rest, roots: rootsOf(latest), isPrepared: false, volumes: [], ...leases });
}

/** Gives back what only the pod itself could see: its root file systems, its address, its slot, its limits and its files. */
export async function releasePod(context: PodContext, record: PodRecord, signal: AbortSignal): Promise<void> {
  const { host, records, slots, addresses, rules, fresh } = context;
  const roots = rootsOf(record);
  fresh.pods.delete(record.uid);
  for (const id of roots) fresh.roots.delete(id);
  await Promise.all([
    ...roots.map((id) => host.releaseRootfs({ id }, signal)),
    ...record.files.map((id) => host.removeFiles({ id }, signal)),
    host.removeCgroup({ id: record.cgroup }, signal),
  ]);
  // Last: what failed is done again from the start, and the number may be another pod's by then.
  if (record.slot !== undefined) await slots.release(record.slot, signal);
  if (record.address !== undefined) addresses.release(record.address);
  const { slot: _slot, roots: _roots, ...rest } = records.get(record.uid) ?? record;
  await records.save({ ...rest, files: [] });
  await rules.apply();
  for (const listener of context.afterRelease) listener();
}

/** Removes the last of a pod that the API no longer has: its logs and its record. One whose memory was saved keeps them. */
export async function forgetPod(context: PodContext, uid: string, signal: AbortSignal): Promise<void> {
  const record = context.records.get(uid);
  const isHibernated = context.sleep.of(uid).saved !== undefined;
  if (record !== undefined && !isHibernated)
    for (const id of soleDirs(context, record)) await context.host.removeEmptyDir({ id }, signal);
  if (record !== undefined) await discardClones(context, record, signal);
  context.puller.forget(`${uid}/`);
  context.tokens.forget(uid);
  context.sleep.forget(uid);
  context.memory.forget(uid);
  // The memory on disk refers to files in its directories: the record keeps both until the Sandbox's next pod.
  if (record === undefined || !isHibernated) return context.records.remove(uid);
  await context.records.save({ ...record, isHibernated });
  // A Sandbox that went before this line still had a pod, whose memory stays.
  for (const listener of context.afterRelease) listener();
}

/** Every root file system of a pod, made ahead or in use. */
export function rootsOf({ containers, roots = [], pauseId }: PodRecord): string[] {
  const used = Object.values(containers).map(({ rootfsId }) => rootfsId);
  return [...new Set([...used, ...roots, ...(pauseId === undefined ? [] : [pauseId])])];
}
