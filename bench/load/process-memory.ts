import { readFileSync } from "node:fs";

/** Resident memory of processes, in MiB. */
export function residentMiB(pids: readonly number[]): number {
  const kib = pids.map((pid) => /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "0");
  return kib.reduce((sum, each) => sum + Number(each), 0) / 1024;
}

/** The most resident memory that a process ever had, in MiB. */
export function peakMiB(pid: number): number {
  return Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "0") / 1024;
}

/** CPU time of a process so far, in seconds. */
export function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}
