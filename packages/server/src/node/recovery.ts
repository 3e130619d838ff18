import { namespacedKey } from "@agent-sandbox/api";
import type { SweepReport } from "./host/host.ts";
import type { NodeCaches } from "./node-caches.ts";
import { type RunningContainer, startProbes } from "./pods/container-probes.ts";
import { servesDaemon } from "./pods/daemon-watch.ts";
import type { PodContext } from "./pods/pod-context.ts";
import { holdsAddress, type PodRecord, storageUidOf } from "./pods/pod-record.ts";
import { watchRestore } from "./pods/pod-restore.ts";
import { recoverSleep } from "./pods/pod-sleep.ts";
import { etcFilesId } from "./pods/prepare-pod.ts";
import { watchDaemon } from "./pods/start-container.ts";
import { sendStopSignal } from "./pods/stop-container.ts";
import { rootsOf } from "./pods/teardown-pod.ts";
import { recoverSnapshots } from "./snapshots/discard-snapshot.ts";
import { removeUnowned } from "./volume-keeping/volume-cleanup.ts";

/** Takes over what an earlier agent left: records, containers, slots and addresses. Call before anything is started. */
export async function recover(context: PodContext): Promise<void> {
  const { records, exits, slots, addresses, images, shelf } = context;
  await records.load(shelf);
  await images.load(shelf);
  await exits.load();
  await noteReboot(context);
  await recoverSnapshots(context);
  await context.doomedVolumes.load(shelf);
  await recoverSleep(context);
  await slots.load(records.all().flatMap(({ slot }) => (slot === undefined ? [] : [slot])));
  for (const record of records.all())
    if (record.address !== undefined && holdsAddress(record)) addresses.adopt(record.address);
}

/** After a reboot the disk is all there is: a pod whose slot is gone has lost everything it was prepared with, and is prepared again. */
async function noteReboot({ host, records, signal }: PodContext): Promise<void> {
  const present = new Set((await host.listSlots(signal)).map(({ slot }) => slot));
  for (const record of records.all()) {
    if (record.slot === undefined || present.has(record.slot)) continue;
    const { slot: _slot, ...rest } = record;
    await records.save({ ...rest, isPrepared: false });
  }
}

/** Resumes what only an agent's memory had: probes, and stop signals that may not have been sent. Call once the pods are known. */
export async function resumeContainers(context: PodContext, caches: NodeCaches): Promise<void> {
  const { records, exits } = context;
  for (const record of records.all()) {
    const pod = caches.pods.get(namespacedKey(record.namespace, record.name));
    if (pod?.metadata.uid !== record.uid) continue;
    for (const run of Object.values(record.containers)) {
      if (run.end !== undefined || exits.states.get(run.hostId)?.status !== "running") continue;
      const container = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].find(
        ({ name }) => name === run.name,
      );
      if (run.stopping !== undefined) await sendStopSignal(context, run.hostId, run.imageId);
      else if (container !== undefined) resumeContainer(context, { pod, container, hostId: run.hostId });
    }
    void watchRestore(context, pod);
  }
}

/** A daemon that has answered once goes on for as long as its container: it is the container's first process. */
function resumeContainer(context: PodContext, running: RunningContainer): void {
  const { pod, container, hostId } = running;
  const wasReady = pod.status?.containerStatuses?.some(
    ({ containerID, ready }) => ready && containerID?.endsWith(`/${hostId}`) === true,
  );
  // No probe can have told anything else of what stands still, and none may delay its wake.
  const isStill = context.sleep.isStill(pod.metadata.uid ?? "");
  startProbes(context, { ...running, wasReady: isStill && wasReady === true });
  if (wasReady === true && servesDaemon(pod, container)) context.daemons.adopt(hostId);
  else void watchDaemon(context, running);
}

/** Removes what has no owner: everything of this instance that is in no record, and layers of Sandboxes that are gone. */
export async function sweepOrphans(context: PodContext, caches: NodeCaches, signal: AbortSignal): Promise<SweepReport> {
  const { host, records, slots } = context;
  const all = records.all();
  await removeUnowned(context, caches, signal);
  // One that was made after the list of what stays would be swept away.
  await slots.idle();
  const [kept, saved] = await Promise.all([host.listWritableLayers(signal), host.listSaved(signal)]);
  return host.sweep(
    {
      containers: all.flatMap(containersOf),
      rootfs: all.flatMap(rootsOf),
      writableLayers: kept.map(({ key }) => key),
      volumes: all.flatMap(({ volumes }) => volumes),
      emptyDirs: [...all.flatMap(({ emptyDirs }) => emptyDirs), ...snapshotDirs(context)],
      files: all.flatMap((record) =>
        record.isPrepared ? [...record.files, etcFilesId(storageUidOf(record))] : record.files,
      ),
      slots: [...slots.used, ...slots.free],
      cgroups: all.map(({ cgroup }) => cgroup),
      saved: saved.map(({ id }) => id),
      network: true,
    },
    signal,
  );
}

function snapshotDirs({ snapshots }: PodContext): string[] {
  const images = snapshots.all().flatMap((snapshot) => snapshot.images);
  return images.filter(({ kind }) => kind === "empty-dir").map(({ id }) => id);
}

function containersOf({ containers, pauseId }: PodRecord): string[] {
  return [...Object.values(containers).map(({ hostId }) => hostId), ...(pauseId === undefined ? [] : [pauseId])];
}
