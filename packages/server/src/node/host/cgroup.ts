/** Limits of one pod. */
export interface EnsureCgroupRequest {
  readonly id: string;
  /** Hard limit in thousandths of a core; absent: none. */
  readonly cpuMillis?: number;
  /** Relative weight, 2 to 262144; 1024 is one core's share. */
  readonly cpuShares: number;
  /** Hard limit, the runtime's own memory included; absent: none. */
  readonly memoryBytes?: number;
  /** Host tasks, the runtime's own included. */
  readonly pids: number;
}

/** One of the limits a cgroup can hold. */
export type CgroupLimit = "cpu" | "memory" | "pids" | "freezer";

/** What became of the limits. */
export interface CgroupReport {
  /** Limits that were asked for and that this machine cannot enforce. Nothing is silently left out. */
  readonly unenforced: readonly CgroupLimit[];
}

/** Use as of now, of a pod. */
export interface CgroupStats {
  readonly cpuUsageUsec: number;
  readonly memoryBytes: number;
  /** Without pages of clean files: what `kubectl top` shows. */
  readonly workingSetBytes: number;
  readonly pids: number;
  /** Times the kernel killed for memory. */
  readonly oomKills: number;
  /** Times memory was not given because of the pod's own limit, and not that of all pods together. */
  readonly memoryRefused: number;
  /** Times a process was not made because of the limit. */
  readonly pidsRefused: number;
  /** Its processes stand still, or are on their way there. */
  readonly frozen: boolean;
  /** Its part of the pages of files that several map; there exactly where it was asked for. */
  readonly sharedBytes?: number;
}

/** Whose use is asked for. */
export interface CgroupStatsRequest {
  readonly id: string;
  /** Its part of shared pages too: the kernel walks all page tables for it, which takes milliseconds instead of microseconds. */
  readonly shared?: boolean;
}

/** What a pod whose processes stand still takes of the machine's memory. */
export interface FrozenCgroup {
  readonly residentBeforeBytes: number;
  /** After as much was given back as could be within a tenth of a second; more may follow. */
  readonly residentBytes: number;
  /** Whether this machine can put memory of programs elsewhere; without swap only pages of files are given back. */
  readonly hasSwap: boolean;
}
