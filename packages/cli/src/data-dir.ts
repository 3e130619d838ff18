import path from "node:path";
import type { Context } from "./context.ts";

/** The default data directory of the one-machine engine. */
export const dataDirDefault = "/var/lib/agent-sandbox";

/** The data directory that is meant, as an absolute path. */
export function dataDirOf(flags: { readonly dataDir?: string }, { env }: Pick<Context, "env">): string {
  return path.resolve(flags.dataDir ?? (env["AGENT_SANDBOX_DATA_DIR"] || dataDirDefault));
}
