import { resolve } from "node:path";
import { readText } from "./read-text.ts";

/** What a running one-machine engine says about itself to the commands and clients that look for it. */
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
  /** Where the checkout or the release that runs begins. */
  readonly installation: string;
}

/** The kernel gives a pid to another process later; pid and start time together name one process. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTicks: string;
}

/** Where the engine of a data directory keeps its sockets and its record: six hexadecimal digits of the path name the instance. */
export function runDirOf(dataDir: string, root = "/run/agent-sandbox"): string {
  // An import would load all of the module, the parts for browsers too: every command would pay for them.
  const { createHash } = process.getBuiltinModule("node:crypto");
  const instance = createHash("sha256").update(resolve(dataDir)).digest("hex").slice(0, 6);
  return `${root}/${instance}`;
}

/** The record's file in the engine's run directory. */
export function recordFileIn(runDir: string): string {
  return `${runDir}/engine.json`;
}

/** The identity of a live process, or undefined. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  try {
    const stat = readText(`/proc/${pid}/stat`);
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

/** The record in that file if its engine runs. Throws what reading the file throws, but for a file that is not there. */
export function liveRecordIn(file: string): EngineRecord | undefined {
  let text: string;
  try {
    text = readText(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  const record = JSON.parse(text) as EngineRecord;
  return isAlive(record.supervisor) ? record : undefined;
}
