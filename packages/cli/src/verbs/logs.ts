import { once } from "node:events";
import { type EngineFlags, required, type Verb } from "../context.ts";
import { parseDurationMs } from "../duration.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import { processLines } from "../output/process-lines.ts";
import { unguarded } from "../terminal/harmless.ts";

interface LogFlags extends EngineFlags {
  readonly follow?: boolean;
  readonly tail?: string;
  readonly since?: string;
  readonly timestamps?: boolean;
  readonly previous?: boolean;
  readonly container?: string;
  readonly raw?: boolean;
  readonly process?: string;
}

/** Prints what a sandbox's own process wrote, and those that were started in the background. */
export const logsVerb: Verb = async (context, args, flags) => {
  const { follow, tail, since, timestamps, previous, container, raw, process, ...engine } = flags as LogFlags;
  const sandbox = await findSandbox(required(args, 0, "sandbox"), engine, context);
  const logs = sandbox.logs({
    ...(follow !== undefined && { follow }),
    // Of one process the last lines are counted here: those of others stand between them.
    ...(tail !== undefined && process === undefined && { tailLines: Number(tail) }),
    ...(since !== undefined && { sinceMs: parseDurationMs("--since", since) }),
    ...(timestamps !== undefined && { timestamps }),
    ...(previous !== undefined && { previous }),
    ...(container !== undefined && { container }),
    signal: context.signal,
  });
  const stdout = raw === true ? unguarded(context.stdout) : context.stdout;
  const choice = { hasTimes: timestamps === true, isFollowed: follow === true };
  const tailLines = tail === undefined ? {} : { tailLines: Number(tail) };
  const chosen = process === undefined ? logs : processLines(logs, { process, ...choice, ...tailLines });
  for await (const chunk of chosen) if (!stdout.write(chunk)) await once(stdout, "drain");
};
