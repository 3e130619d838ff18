import { resolve } from "node:path";
import { readText } from "@agent-sandbox/kube/read-text";
import { SandboxError } from "../errors/sandbox-error.ts";

/** What a running one-machine engine says about itself. */
export interface EngineRecord {
  readonly version: string;
  readonly dataDir: string;
  readonly supervisor: { readonly pid: number; readonly startTicks: string };
  readonly apiUrl: string;
  readonly routerUrl: string;
  readonly metricsUrl: string;
  readonly kubeconfig: string;
  readonly nodeSocket: string;
  readonly startedAt: string;
}

/** Where the engine of a data directory keeps its record: six hexadecimal digits of the path name the instance. */
export function recordFileOf(dataDir: string, runDir = "/run/agent-sandbox"): string {
  // An import would load all of the module, the parts for browsers too: every command would pay for them.
  const { createHash } = process.getBuiltinModule("node:crypto");
  const instance = createHash("sha256").update(resolve(dataDir)).digest("hex").slice(0, 6);
  return `${runDir}/${instance}/engine.json`;
}

/** What a user who is not root can do. */
const rootOnly =
  "the engine of this machine is root's: run as root, or name a kubeconfig that root gave you with AGENT_SANDBOX_KUBECONFIG";

/** The record of the engine that runs on this data directory, or undefined. */
export async function readEngineRecord(dataDir: string, runDir?: string): Promise<EngineRecord | undefined> {
  const file = recordFileOf(dataDir, runDir);
  let text: string;
  try {
    text = readText(file);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "ENOENT") return undefined;
    const advice = code === "EACCES" ? `; ${rootOnly}` : "";
    throw new SandboxError("permission-denied", `cannot read ${file}${advice}`, { cause });
  }
  const record = JSON.parse(text) as EngineRecord;
  return isAlive(record.supervisor) ? record : undefined;
}

/** The kernel gives a pid again to another process; a pid and a start time together name one. */
function isAlive({ pid, startTicks }: EngineRecord["supervisor"]): boolean {
  try {
    const stat = readText(`/proc/${pid}/stat`);
    // The command's name may hold spaces and parentheses; the fields are counted from the last one.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] !== "Z" && fields[19] === startTicks;
  } catch {
    return false;
  }
}
