import { HostError } from "../host/host-error.ts";
import type { PodContext } from "./pod-context.ts";
import type { PodRecord } from "./pod-record.ts";

type Kept = Pick<PodContext, "records" | "sleep">;

/** Whose volumes a pod may share: another pod of the same Sandbox is the one that its memory goes on in. */
function ownerOf({ sandboxUid, uid }: Pick<PodRecord, "sandboxUid" | "uid">): string {
  return sandboxUid ?? uid;
}

/**
 * Volumes that must not change, because memory that has their files open is saved, or is about to be: another writer's changes would be behind the back of the programs that go on.
 */
function leasesOf({ sleep }: Kept, record: PodRecord): readonly string[] {
  const { saved, isFalling } = sleep.of(record.uid);
  return record.leases ?? (saved !== undefined || isFalling === true ? record.volumes : []);
}

/** The pod of another Sandbox whose saved memory needs one of some volumes as it is; undefined where all of them are free. */
export function leaseholder(
  context: Kept,
  pod: Pick<PodRecord, "sandboxUid" | "uid">,
  volumes: readonly string[],
): PodRecord | undefined {
  const others = context.records.all().filter((other) => ownerOf(other) !== ownerOf(pod));
  return others.find((other) => leasesOf(context, other).some((id) => volumes.includes(id)));
}

/** What a pod that waits for a volume of such a one says. */
export function leaseMessage({ sandboxName, name }: PodRecord): string {
  return `a volume is kept as it is for Sandbox "${sandboxName ?? name}", whose saved memory has its files open; it is free when that Sandbox runs, is started cold or is deleted`;
}

/** Throws where another pod uses a volume of this one. Preconditions: the pod is written down as falling asleep, so that none can begin to. */
export function assertSole({ records }: Pick<Kept, "records">, record: PodRecord): void {
  const user = records
    .all()
    .find((other) => ownerOf(other) !== ownerOf(record) && other.volumes.some((id) => record.volumes.includes(id)));
  if (user !== undefined)
    throw new HostError("busy", `pod ${user.name} uses a volume of it, and would change it behind the saved memory`);
}
