import { stopProbes } from "./container-probes.ts";
import type { PodContext } from "./pod-context.ts";
import type { PodRecord } from "./pod-record.ts";

/**
 * Gives back everything a pod has on the host, except its record and logs. Every verb is idempotent and the record is
 * rewritten last, so that an interrupted teardown is done again from the start.
 */
export async function teardownPod(context: PodContext, record: PodRecord, signal: AbortSignal): Promise<void> {
  const { host, records, exits, slots, addresses, rules } = context;
  const runs = Object.values(record.containers);
  for (const { hostId } of runs) stopProbes(context, hostId);
  await Promise.all(runs.map(({ hostId }) => host.deleteContainer({ id: hostId }, signal)));
  if (record.pauseId !== undefined) await host.deleteContainer({ id: record.pauseId }, signal);
  for (const { hostId } of runs) exits.forget(hostId);
  if (record.pauseId !== undefined) exits.forget(record.pauseId);
  const roots = [
    ...new Set([...runs.map(({ rootfsId }) => rootfsId), ...(record.pauseId === undefined ? [] : [record.pauseId])]),
  ];
  await Promise.all(roots.map((id) => host.releaseRootfs({ id }, signal)));
  const shared = new Set(
    records.all().flatMap((other) => (other.uid === record.uid || !other.isPrepared ? [] : other.volumes)),
  );
  await Promise.all([
    ...record.volumes.filter((id) => !shared.has(id)).map((id) => host.releaseVolume({ id }, signal)),
    ...record.files.map((id) => host.removeFiles({ id }, signal)),
    host.removeCgroup({ id: record.cgroup }, signal),
  ]);
  if (record.slot !== undefined) await slots.release(record.slot, signal);
  if (record.address !== undefined) addresses.release(record.address);
  const { slot: _slot, pauseId: _pauseId, ...rest } = records.get(record.uid) ?? record;
  await records.save({ ...rest, isPrepared: false, volumes: [], files: [] });
  await rules.apply();
}

/** Removes the last of a pod that the API no longer has: its logs and its record. */
export async function forgetPod(context: PodContext, uid: string, signal: AbortSignal): Promise<void> {
  const record = context.records.get(uid);
  for (const id of record?.emptyDirs ?? []) await context.host.removeEmptyDir({ id }, signal);
  context.puller.forget(`${uid}/`);
  context.tokens.forget(uid);
  await context.records.remove(uid);
}
