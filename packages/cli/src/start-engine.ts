import path from "node:path";
import type { EngineRecord } from "@agent-sandbox/server/main/engine-record";
import { dataDirDefault } from "./data-dir.ts";

/** Starts the engine as a process of its own, with `args` behind `up`, and resolves when it answers. */
export async function startEngineProcess(dataDir: string, args: readonly string[]): Promise<EngineRecord> {
  const { startDetached } = await import("@agent-sandbox/server/main/up");
  const main = path.join(import.meta.dirname, "main.ts");
  const own = ["--disable-warning=ExperimentalWarning", main, "up", "--data-dir", dataDir];
  return startDetached(dataDir, { file: process.execPath, args: [...own, ...args] });
}

/** Arguments for an engine that `run` starts: a second engine on this machine must not want the first one's ports. */
export function implicitArgs(dataDir: string): string[] {
  if (dataDir === dataDirDefault) return [];
  return ["--listen", "--router-listen", "--metrics-listen"].flatMap((flag) => [flag, "127.0.0.1:0"]);
}
