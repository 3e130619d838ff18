import type { Pod } from "@agent-sandbox/api";
import { delay, type Informer } from "@agent-sandbox/kube";
import { HostError } from "../host/host-error.ts";
import type { PodContext } from "../pods/pod-context.ts";
import type { PodRecord } from "../pods/pod-record.ts";
import { fullMessage, type PodDisk, planEviction } from "./plan-disk.ts";
import { sampleDisks } from "./sample-disks.ts";

/** How often the machine's disk is looked at: one system call. */
const lookEveryMs = 1_000;

/** How many of these looks pass between two at every pod's file systems, unless the disk gets short. */
const looksPerSample = 5;

/** Pods are looked at every time from this many times the floor on: what grew is known before it matters. */
const shortFactor = 2;

/** The keeper's parts. */
export interface DiskKeeperOptions {
  readonly context: PodContext;
  readonly pods: Pick<Informer<Pod>, "get">;
  /** Bytes that are free on the disk of the data directory. */
  readonly freeBytes: () => Promise<number>;
}

/** Finds full file systems, tells of them, and ends what would fill the machine's disk; until the signal aborts. */
export async function runDiskKeeper({ context, pods, freeBytes }: DiskKeeperOptions): Promise<void> {
  const { clock, logger, signal, config } = context;
  const floorBytes = config.limits.reservedDiskBytes;
  let before: readonly PodDisk[] = [];
  for (let look = 0; !signal.aborted; look += 1) {
    try {
      await delay(clock, lookEveryMs, signal);
      const free = await freeBytes();
      if (free >= floorBytes * shortFactor && look % looksPerSample !== 0) continue;
      const now = await sampleDisks(context, pods);
      tellFull(context, pods, now);
      const uid = planEviction({ freeBytes: free, floorBytes, before, now });
      if (uid !== undefined) await evict(context, pods, uid);
      before = now;
    } catch (error) {
      if (signal.aborted) return;
      // The helper is away for a moment.
      if (!(error instanceof HostError)) throw error;
      logger.debug({ err: error }, "disks of pods could not be looked at; it is tried again");
    }
  }
}

/** Keeps what is known of full disks true, and has the pods' status follow. */
function tellFull(
  { records, fullDisks, events, wake }: PodContext,
  pods: DiskKeeperOptions["pods"],
  disks: readonly PodDisk[],
): void {
  const found = new Map(
    disks.flatMap((disk) => {
      const message = fullMessage(disk);
      return message === undefined ? [] : [[disk.uid, message] as const];
    }),
  );
  for (const uid of new Set([...fullDisks.keys(), ...found.keys()])) {
    const [was, message] = [fullDisks.get(uid), found.get(uid)];
    if (was === message) continue;
    if (message === undefined) fullDisks.delete(uid);
    else fullDisks.set(uid, message);
    const record = records.get(uid);
    if (record === undefined) continue;
    const pod = podOf(pods, record);
    if (pod !== undefined && message !== undefined && was === undefined)
      events.record({ object: pod, type: "Warning", reason: "DiskFull", message });
    wake(record);
  }
}

/** Ends a pod for good: its record says so, and its next pass carries it out. */
async function evict(
  { records, events, logger, wake }: PodContext,
  pods: DiskKeeperOptions["pods"],
  uid: string,
): Promise<void> {
  const record = records.get(uid);
  if (record === undefined || record.evicted !== undefined) return;
  const message =
    "The node was low on resource: ephemeral-storage. This Pod's files grew the most while the disk ran full";
  await records.save({ ...record, evicted: message });
  logger.warn({ namespace: record.namespace, name: record.name }, "pod evicted: the disk runs full");
  const pod = podOf(pods, record);
  if (pod !== undefined) events.record({ object: pod, type: "Warning", reason: "Evicted", message });
  wake(record);
}

function podOf(pods: DiskKeeperOptions["pods"], { uid, namespace, name }: PodRecord): Pod | undefined {
  const pod = pods.get(`${namespace}/${name}`);
  return pod?.metadata.uid === uid ? pod : undefined;
}
