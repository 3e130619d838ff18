import type { EngineRecord } from "@agent-sandbox/kube/engine-record";
import { entryFile } from "@agent-sandbox/server/installation/installation";
import { foregroundArgs, type UpFlags, upOptions } from "./up-flags.ts";

/** Starts the engine as a process of its own and resolves when it answers. What keeps it from starting is thrown before anything is made. */
export async function startEngineProcess(dataDir: string, flags: UpFlags): Promise<EngineRecord> {
  const options = await upOptions(dataDir, flags);
  const { startDetached } = await import("@agent-sandbox/server/main/up");
  const own = ["--disable-warning=ExperimentalWarning", entryFile("main"), "up", "--data-dir", dataDir];
  return startDetached(options, { file: process.execPath, args: [...own, ...foregroundArgs(flags)] });
}
