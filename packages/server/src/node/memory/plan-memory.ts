import { isNotableChange, type MemoryUse } from "@agent-sandbox/api";

/** What follows from a look at the memory of a pod depends on. */
export interface MemoryQuestion {
  /** What the pod's condition says; undefined where it says nothing. */
  readonly said: MemoryUse | undefined;
  readonly residentBytes: number;
  /** Its processes stand still, or are about to. */
  readonly isStill: boolean;
}

/** Whether the memory of a pod is to be said anew: never before, by a tenth different, or said of a sleep that is over. */
export function isMemoryNews({ said, residentBytes, isStill }: MemoryQuestion): boolean {
  if (said === undefined) return true;
  if (said.beforeSleepBytes !== undefined && !isStill) return true;
  return isNotableChange(said.residentBytes, residentBytes);
}

/** What is known of a pod that has just fallen asleep. */
export interface SleepLook {
  readonly known: MemoryUse | undefined;
  readonly residentBytes: number;
  /** What was resident before this step of its sleep. */
  readonly beforeBytes: number | undefined;
}

/** What a pod takes that has fallen asleep; one that goes a rung deeper fell asleep at the first. */
export function afterSleep({ known, residentBytes, beforeBytes }: SleepLook): MemoryUse {
  const beforeSleepBytes = known?.beforeSleepBytes ?? beforeBytes;
  return { ...known, residentBytes, ...(beforeSleepBytes !== undefined && { beforeSleepBytes }) };
}

/** What a pod takes that has just woken. */
export function afterWake({ beforeSleepBytes: _beforeSleepBytes, ...use }: MemoryUse): MemoryUse {
  return use;
}
