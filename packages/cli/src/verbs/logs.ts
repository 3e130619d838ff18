import { once } from "node:events";
import { type EngineFlags, required, type Verb } from "../context.ts";
import { parseDurationMs } from "../duration.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import { unguarded } from "../terminal/harmless.ts";

interface LogFlags extends EngineFlags {
  readonly follow?: boolean;
  readonly tail?: string;
  readonly since?: string;
  readonly timestamps?: boolean;
  readonly previous?: boolean;
  readonly container?: string;
  readonly raw?: boolean;
}

/** Prints what a sandbox's own process wrote. */
export const logsVerb: Verb = async (context, args, flags) => {
  const { follow, tail, since, timestamps, previous, container, raw, ...engine } = flags as LogFlags;
  const sandbox = await findSandbox(required(args, 0, "sandbox"), engine, context);
  const logs = sandbox.logs({
    ...(follow !== undefined && { follow }),
    ...(tail !== undefined && { tailLines: Number(tail) }),
    ...(since !== undefined && { sinceMs: parseDurationMs("--since", since) }),
    ...(timestamps !== undefined && { timestamps }),
    ...(previous !== undefined && { previous }),
    ...(container !== undefined && { container }),
    signal: context.signal,
  });
  const stdout = raw === true ? unguarded(context.stdout) : context.stdout;
  for await (const chunk of logs) if (!stdout.write(chunk)) await once(stdout, "drain");
};
