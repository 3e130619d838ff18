import os from "node:os";
import path from "node:path";

/** Gives the processes that a benchmark starts the compile cache that the launcher gives to the product's. */
export function useCompileCache(): void {
  process.env["NODE_COMPILE_CACHE"] ??= path.join(os.homedir(), ".cache/agent-sandbox/compile");
}
