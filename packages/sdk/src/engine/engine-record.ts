import { type EngineRecord, liveRecordIn, recordFileIn, runDirOf } from "@agent-sandbox/kube/engine-record";
import { SandboxError } from "../errors/sandbox-error.ts";

/** What a user who is not root can do. */
const rootOnly =
  "the engine of this machine is root's: run as root, or name a kubeconfig that root gave you with AGENT_SANDBOX_KUBECONFIG";

/** The record of the engine that runs on this data directory, or undefined. */
export async function readEngineRecord(dataDir: string, root?: string): Promise<EngineRecord | undefined> {
  const file = recordFileIn(runDirOf(dataDir, root));
  try {
    return liveRecordIn(file);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === undefined) throw cause;
    const advice = code === "EACCES" ? `; ${rootOnly}` : "";
    throw new SandboxError("permission-denied", `cannot read ${file}${advice}`, { cause });
  }
}
