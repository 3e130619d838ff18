import { join } from "node:path";
import type { RecordShelf } from "../durable/record-shelf.ts";
import { PodRecordStore } from "./pods/pod-record-store.ts";
import { savedIdOf } from "./pods/pod-sleep.ts";
import type { SnapshotRecord } from "./pods/snapshot-record.ts";
import { RecordStore } from "./record-store.ts";

/** The emptyDirs, by the host's name, that saved memory and snapshots refer to, as the records of an agent that does not run have them. */
export async function savedDirectories(
  dataDir: string,
  shelf: RecordShelf,
  saved: ReadonlySet<string>,
): Promise<string[]> {
  const pods = new PodRecordStore(join(dataDir, "sandboxes"));
  const snapshots = new RecordStore<SnapshotRecord>(join(dataDir, "snapshots"));
  await pods.load(shelf);
  await snapshots.load(shelf);
  const slept = pods.all().filter(({ uid, sandboxUid }) => saved.has(savedIdOf(sandboxUid ?? uid)));
  const images = snapshots.all().flatMap((snapshot) => snapshot.images.filter(({ kind }) => kind === "empty-dir"));
  return [...slept.flatMap(({ emptyDirs }) => emptyDirs), ...images.map(({ id }) => id)];
}
