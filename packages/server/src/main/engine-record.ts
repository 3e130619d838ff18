import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Layout } from "./layout.ts";
import { writeRootFile } from "./root-files.ts";

/** What a running engine says about itself to the commands that look for it. */
export interface EngineRecord {
  readonly version: string;
  readonly dataDir: string;
  readonly supervisor: ProcessIdentity;
  readonly apiUrl: string;
  readonly routerUrl: string;
  readonly metricsUrl: string;
  readonly kubeconfig: string;
  readonly nodeSocket: string;
  readonly startedAt: string;
}

/** The kernel gives a pid to another process later; pid and start time together name one process. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTicks: string;
}

/** The identity of a live process, or undefined. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The command name may hold spaces and parentheses: fields are counted from the last one. Field 22 is the start time.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [state, startTicks] = [fields[0], fields[19]];
    return startTicks === undefined || state === "Z" ? undefined : { pid, startTicks };
  } catch {
    return undefined;
  }
}

/** True while exactly this process lives. */
export function isAlive(identity: ProcessIdentity): boolean {
  return identifyProcess(identity.pid)?.startTicks === identity.startTicks;
}

/** The record of the engine of this data directory, if it runs. */
export async function readEngineRecord(layout: Layout): Promise<EngineRecord | undefined> {
  try {
    const record = JSON.parse(await readFile(layout.recordFile, "utf8")) as EngineRecord;
    return isAlive(record.supervisor) ? record : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new Error(`cannot read ${layout.recordFile}`, { cause: error });
  }
}

/** Publishes the record for root; readers see the old one or the new one, never half of it. */
export function writeEngineRecord(layout: Layout, record: EngineRecord): void {
  writeRootFile(layout.recordFile, `${JSON.stringify(record, null, 2)}\n`);
}
