import type { Context, Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { startEngineProcess } from "../start-engine.ts";
import { type UpFlags, upOptions } from "../up-flags.ts";

/** Starts the engine, here or detached. */
export const upVerb: Verb<UpFlags> = (context, _args, flags) => up(context, flags);

async function up(context: Context, flags: UpFlags): Promise<void> {
  const dataDir = dataDirOf(flags, context);
  if (flags.detach === true) {
    const record = await startEngineProcess(dataDir, flags);
    context.stdout.write(
      `engine is running: API ${record.apiUrl}, router ${record.routerUrl}\nkubeconfig: ${record.kubeconfig}\n`,
    );
    return;
  }
  const options = await upOptions(dataDir, flags);
  const { runEngine } = await import("@agent-sandbox/server/main/run-engine");
  // The supervisor's own way of ending is by these signals; this command's would cut it short.
  process.removeAllListeners("SIGINT");
  process.removeAllListeners("SIGTERM");
  await runEngine(options, (record) => {
    context.stderr.write(`engine is running: API ${record.apiUrl}, router ${record.routerUrl}\n`);
  });
}
