import type { CgroupStats } from "../host/cgroup.ts";
import type { ContainerProcess } from "../host/container.ts";

/** What a cgroup has counted of its limits. They only grow, over all runs of a pod's containers. */
export type LimitCounts = Pick<CgroupStats, "oomKills" | "memoryRefused" | "pidsRefused">;

/** How a container's last run ended. */
export interface RunEnd {
  readonly exitCode: number;
  readonly signal?: number;
  readonly reason: string;
  readonly message?: string;
  readonly startedAt?: string;
  readonly finishedAt: string;
  readonly hostId: string;
}

/** What the node knows of one container, beyond what the runtime can tell. */
export interface ContainerRecord {
  readonly name: string;
  /** How often it was started before this run. */
  readonly attempt: number;
  /** Host id of this run; the runtime has it, or had it, or is about to. */
  readonly hostId: string;
  /** Root file system of this run. */
  readonly rootfsId: string;
  readonly imageId: string;
  readonly image: string;
  /** The container's own process, for commands that are to run like it. */
  readonly process: ContainerProcess;
  readonly startedAt?: string;
  /** Set once this run is over and what it left has been read. */
  readonly end?: RunEnd;
  /** The end of the run before this one. */
  readonly previousEnd?: RunEnd;
  /** postStart has succeeded, or there is none. */
  readonly postStartDone?: boolean;
  /** The container is being stopped, since when and why. */
  readonly stopping?: {
    readonly sinceMs: number;
    readonly graceMs: number;
    readonly reason: string;
    readonly killed?: boolean;
  };
  /** What the pod's cgroup had counted when this run began; absent: nothing. */
  readonly limitsBefore?: LimitCounts;
  /** Consecutive failures that the back-off counts; a long good run resets it. */
  readonly crashes: number;
}

/** How a pod is started from saved memory. */
export interface RestoreRecord {
  /** Name of the saved state. */
  readonly saved: string;
  /** `restoring` until all memory has been read; the saved state is gone with `restored` and stays with `failed`. */
  readonly state: "restoring" | "restored" | "failed";
  /** Why it failed. */
  readonly message?: string;
  /** Uid of the pod whose memory it is. */
  readonly from?: string;
  /** The root container that the saved sandbox had besides those below. */
  readonly root?: string;
  /** The saved state is a snapshot's: others start from it too, and it stays. */
  readonly isShared?: boolean;
  /** The runs that were saved, by container. */
  readonly runs: Readonly<Record<string, { readonly hostId: string; readonly attempt: number }>>;
}

/** Everything one pod has on this node. It is on disk before the first side effect, so that a killed agent finds it again. */
export interface PodRecord {
  readonly version: 1;
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** Uid of the Sandbox the pod belongs to, if it does. */
  readonly sandboxUid?: string;
  readonly sandboxName?: string;
  readonly runtime: "runsc" | "runc";
  readonly slot?: number;
  readonly address?: string;
  /** Whether cgroup, address, volumes and rules are in place. */
  readonly isPrepared: boolean;
  readonly cgroup: string;
  readonly volumes: readonly string[];
  /** With saved memory: the volumes it had, which nobody else may use meanwhile. */
  readonly leases?: readonly string[];
  readonly emptyDirs: readonly string[];
  /** The emptyDir that the daemon writes to, if it was made ahead with the sandbox. */
  readonly stateId?: string;
  readonly files: readonly string[];
  /** The writable layer that was made ahead with the sandbox; the first root file system takes it. */
  readonly spareId?: string;
  /** Root file systems made ahead of the first start, and the layer made ahead for them. */
  readonly roots?: readonly string[];
  /** Why the pod was ended by the node for good, if it was. */
  readonly evicted?: string;
  /** The root of the sandbox that the pod's containers join: the pause container of a pod with several, or a sandbox made ahead. */
  readonly pauseId?: string;
  readonly containers: Readonly<Record<string, ContainerRecord>>;
  readonly startedAt: string;
  /** The pod is gone and its memory on disk: the record keeps its directories for the pod that is restored from it. */
  readonly isHibernated?: boolean;
  /** Present for a pod that was started from saved memory, or was to be. */
  readonly restore?: RestoreRecord;
  /** The snapshot whose files the pod's Sandbox begins with, and whether they have been cloned for it. */
  readonly origin?: {
    readonly snapshotUid: string;
    readonly isCloned: boolean;
    /** What the volumes of claims are called that are made of the snapshot's, by volume. */
    readonly volumes: Readonly<Record<string, string>>;
    /** Name of the SandboxSnapshot. */
    readonly snapshotName?: string;
    /** The layers that are made of the snapshot's, where the Sandbox goes back to one of its own. */
    readonly layers?: readonly string[];
  };
  /** Which of the Sandbox's layers the pod has: see `filesGenerationOf`. */
  readonly layerGeneration?: number;
  /** Uid that emptyDirs and files are named by, if it is another pod's: that of the first one of a row of restores. */
  readonly storageUid?: string;
}

/** The uid that a pod's emptyDirs and files are named by. */
export function storageUidOf({ uid, storageUid }: Pick<PodRecord, "uid" | "storageUid">): string {
  return storageUid ?? uid;
}

/** Whether a pod's address is its own: from before it is prepared, and until it has given back its files. */
export function holdsAddress({ files }: PodRecord): boolean {
  return files.length > 0;
}

/** A copy with one container replaced. */
export function withContainer(record: PodRecord, container: ContainerRecord): PodRecord {
  return { ...record, containers: { ...record.containers, [container.name]: container } };
}

/**
 * A copy without runs that were written down and never began: the agent that was about to start them is gone, and the runtime knows nothing of
 * them. They are no runs that ended, so each is put back to where it was before.
 */
export function withoutUnbegun(record: PodRecord, isKnown: (hostId: string) => boolean): PodRecord {
  const runs = Object.values(record.containers);
  const begun = runs.flatMap((run): ContainerRecord[] => {
    const { startedAt, end, hostId, previousEnd, attempt } = run;
    if (startedAt !== undefined || end !== undefined || isKnown(hostId)) return [run];
    return previousEnd === undefined ? [] : [{ ...run, attempt: attempt - 1, end: previousEnd }];
  });
  return { ...record, containers: Object.fromEntries(begun.map((run) => [run.name, run])) };
}
