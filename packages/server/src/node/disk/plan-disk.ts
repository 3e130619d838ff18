/** One file system of a pod. */
export interface DiskPart {
  /** As a message names it: `the writable layer of container main`. */
  readonly name: string;
  readonly sizeBytes: number;
  readonly usedBytes: number;
}

/** The file systems of one pod. */
export interface PodDisk {
  readonly uid: string;
  readonly parts: readonly DiskPart[];
}

/** A file system with less than this free is full: ext4 keeps 2 % for itself, at most 16 MiB, and a program that is refused a large piece leaves room for a small one. */
const fullBytes = 18 * 2 ** 20;
const fullShare = 0.04;

/** Growth between two looks that is no reason to end a pod: logs and caches. */
const growthMinBytes = 16 * 2 ** 20;

/** Why a pod's disk is full; undefined when it is not. */
export function fullMessage({ parts }: PodDisk): string | undefined {
  const full = parts.filter(({ sizeBytes, usedBytes }) => {
    return sizeBytes > 0 && sizeBytes - usedBytes < Math.min(fullBytes, sizeBytes * fullShare);
  });
  if (full.length === 0) return undefined;
  const list = full.map(({ name, sizeBytes }) => `${name} (${Math.round(sizeBytes / 2 ** 20)}Mi)`);
  return `no space is left on ${list.join(" and ")}`;
}

/** What an eviction follows from. */
export interface EvictionQuestion {
  readonly freeBytes: number;
  readonly floorBytes: number;
  /** The look before this one. */
  readonly before: readonly PodDisk[];
  readonly now: readonly PodDisk[];
}

/**
 * The pod to end so that the machine's disk does not fill up: the one whose files grew the most since the look before. One that does not grow
 * is left alone: ending it makes no room that it would take.
 */
export function planEviction({ freeBytes, floorBytes, before, now }: EvictionQuestion): string | undefined {
  if (freeBytes >= floorBytes) return undefined;
  const usedBefore = new Map(before.map((pod) => [pod.uid, usedBytes(pod)]));
  const growths = now.flatMap((pod) => {
    const was = usedBefore.get(pod.uid);
    const bytes = was === undefined ? 0 : usedBytes(pod) - was;
    return bytes < growthMinBytes ? [] : [{ uid: pod.uid, bytes }];
  });
  return growths.toSorted((a, b) => b.bytes - a.bytes)[0]?.uid;
}

function usedBytes({ parts }: PodDisk): number {
  return parts.reduce((sum, part) => sum + part.usedBytes, 0);
}
