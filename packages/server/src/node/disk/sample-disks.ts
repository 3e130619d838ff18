import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Pod } from "@agent-sandbox/api";
import { namespacedKey } from "@agent-sandbox/api";
import type { Informer } from "@agent-sandbox/kube";
import { partHostId } from "../container-id.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { type PodRecord, storageUidOf } from "../pods/pod-record.ts";
import { rawLogSuffixes } from "../pods/start-container.ts";
import { claimName } from "../volumes/plan-volumes.ts";
import type { DiskPart, PodDisk } from "./plan-disk.ts";

type Fill = Omit<DiskPart, "name">;

/** How full every file system of every pod is, as of now. */
export async function sampleDisks(
  { host, records, signal }: PodContext,
  pods: Pick<Informer<Pod>, "get">,
): Promise<PodDisk[]> {
  const [roots, volumes, emptyDirs] = await Promise.all([
    host.listRootfs(signal),
    host.listVolumes(signal),
    host.listEmptyDirs(signal),
  ]);
  const fills = new Map<string, Fill>([
    ...roots.flatMap(({ id, writable }) => (writable === undefined ? [] : [[`root/${id}`, writable] as const])),
    ...volumes.filter(({ mounted }) => mounted).map((volume) => [`volume/${volume.id}`, volume] as const),
    ...emptyDirs.map((dir) => [`empty/${dir.id}`, dir] as const),
  ]);
  return Promise.all(
    records.all().map(async (record) => {
      const pod = pods.get(namespacedKey(record.namespace, record.name));
      const names = namesOf(record, pod?.metadata.uid === record.uid ? pod : undefined);
      const parts = [...names].flatMap(([key, name]): DiskPart[] => {
        const fill = fills.get(key);
        return fill === undefined ? [] : [{ name, sizeBytes: fill.sizeBytes, usedBytes: fill.usedBytes }];
      });
      return { uid: record.uid, parts: [...parts, ...(await rawLogs(records.directoryOf(record.uid)))] };
    }),
  );
}

/** Output that the runtime writes to the node's own directory, all of it for pods without the daemon: it has no file system of its own, and so no size. */
async function rawLogs(directory: string): Promise<DiskPart[]> {
  // A pod that goes meanwhile has nothing left.
  const names = (await readdir(directory).catch(() => [])).filter((name) =>
    Object.values(rawLogSuffixes).some((suffix) => name.endsWith(suffix)),
  );
  return Promise.all(
    names.map(async (name) => {
      const { size } = await stat(join(directory, name)).catch(() => ({ size: 0 }));
      return { name: `the log ${name}`, sizeBytes: 0, usedBytes: size };
    }),
  );
}

/** What a pod has, by the host's names, as its owner would call it. */
function namesOf(record: PodRecord, pod: Pod | undefined): Map<string, string> {
  const { containers, volumes, emptyDirs } = record;
  const declared = pod?.spec?.volumes ?? [];
  const nameOfDir = new Map(declared.map(({ name }) => [partHostId(storageUidOf(record), "volume", name), name]));
  const claims = pod === undefined ? [] : declared.flatMap((volume) => claimName(pod, volume) ?? []);
  return new Map([
    ...Object.values(containers).map(
      ({ name, rootfsId }) => [`root/${rootfsId}`, `the writable layer of container ${name}`] as const,
    ),
    // A record's volumes are in the order of the claims its pod names.
    ...volumes.map((id, index) => [`volume/${id}`, `the volume of claim ${claims[index] ?? id}`] as const),
    ...emptyDirs.map((id) => {
      const name = nameOfDir.get(id);
      return [`empty/${id}`, name === undefined ? "the directory of logs" : `volume ${name}`] as const;
    }),
  ]);
}
