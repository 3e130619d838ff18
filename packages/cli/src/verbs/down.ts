import type { Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";

/** Stops the engine of this machine. */
export const downVerb: Verb = async (context, _args, flags) => {
  const { dataDir, purge = false } = flags as { dataDir?: string; purge?: boolean };
  const directory = dataDirOf(dataDir === undefined ? {} : { dataDir }, context);
  const { down } = await import("@agent-sandbox/server/main/down");
  const { wasRunning } = await down(directory, { purge });
  const what = wasRunning ? "engine is stopped" : "no engine was running";
  context.stdout.write(`${what}${purge ? `; ${directory} is deleted` : ""}\n`);
};
