import type { Pod } from "@agent-sandbox/api";
import { namespacedKey } from "@agent-sandbox/api";
import { type Controller, type ControllerTelemetry, defineLoop, type Informer } from "@agent-sandbox/kube";
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
  readonly telemetry: ControllerTelemetry;
}

/** Finds full file systems, says so on their pods, and ends what would fill the machine's disk. */
export function diskKeeper({ context, pods, freeBytes, telemetry }: DiskKeeperOptions): Controller {
  const { clock, logger, config } = context;
  const floorBytes = config.limits.reservedDiskBytes;
  let before: readonly PodDisk[] = [];
  let looks = 0;
  const look = async (): Promise<void> => {
    const free = await freeBytes();
    const isSampled = looks % looksPerSample === 0 || free < floorBytes * shortFactor;
    looks += 1;
    if (!isSampled) return;
    const now = await sampleDisks(context, pods);
    tellFull(context, pods, now);
    const uid = planEviction({ freeBytes: free, floorBytes, before, now });
    if (uid !== undefined) await evict(context, pods, uid);
    before = now;
  };
  const run = async (): Promise<void> => {
    await look().catch((error: unknown) => {
      if (!(error instanceof HostError)) throw error;
      // The helper is being restarted: the next look is a second away.
      logger.debug({ err: error }, "disks of pods could not be looked at; it is tried again");
    });
  };
  return defineLoop({ name: "node-disks", clock, telemetry, everyMs: lookEveryMs, run });
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
  const pod = pods.get(namespacedKey(namespace, name));
  return pod?.metadata.uid === uid ? pod : undefined;
}
