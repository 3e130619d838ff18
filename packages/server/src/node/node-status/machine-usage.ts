import { cpus, freemem, totalmem } from "node:os";

/** Use of the whole machine at one moment. */
export interface MachineUsage {
  readonly atMs: number;
  /** Since boot, over all cores, without idling. */
  readonly cpuSeconds: number;
  /** Not available to a program that would ask for it. */
  readonly memoryBytes: number;
}

/** Reads the machine's use. */
export function readMachineUsage(atMs: number): MachineUsage {
  const busyMs = cpus().reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0);
  return { atMs, cpuSeconds: busyMs / 1000, memoryBytes: totalmem() - freemem() };
}
