import { readFile } from "node:fs/promises";

/** How many tasks the machine has and may have. */
export interface ProcessIds {
  readonly used: number;
  readonly max: number;
}

/** Counts the machine's tasks; threads have process ids too. */
export async function readProcessIds(): Promise<ProcessIds> {
  const [load, ...limits] = await Promise.all(
    ["/proc/loadavg", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].map((file) => readFile(file, "utf8")),
  );
  return { used: tasksOf(load ?? ""), max: Math.min(...limits.map(Number)) };
}

/** The total of `running/total`, the fourth word of /proc/loadavg. Exported for tests. */
export function tasksOf(loadavg: string): number {
  return Number(loadavg.split(" ")[3]?.split("/")[1] ?? 0);
}
