import { type EngineFlags, openEngine, required, type Verb } from "../context.ts";
import { parseDurationMs } from "../duration.ts";
import { parsePairs } from "../name-value.ts";
import { sandboxKind } from "../objects/kinds.ts";
import { printObjects } from "../output/print-objects.ts";
import { Progress } from "../output/progress.ts";

interface ClaimFlags extends EngineFlags {
  readonly name?: string;
  readonly ttl?: string;
  readonly env?: string[];
  readonly output?: "json" | "yaml" | "name" | "wide";
}

/** Takes a sandbox from a pool and prints its name. */
export const claimVerb: Verb = async (context, args, flags) => {
  const { name, ttl, env = [], output, ...engineFlags } = flags as ClaimFlags;
  const engine = await openEngine(engineFlags);
  const { Sandbox } = await import("@agent-sandbox/sdk/sandbox");
  using progress = new Progress(context);
  const sandbox = await Sandbox.claim(required(args, 0, "pool"), {
    engine,
    signal: context.signal,
    onProgress: (text) => progress.show(text),
    ...(name !== undefined && { name }),
    ...(ttl !== undefined && { ttlMs: parseDurationMs("--ttl", ttl) }),
    ...(env.length > 0 && { env: parsePairs("--env", env, context.env) }),
  });
  progress.clear();
  if (output === undefined) context.stdout.write(`${sandbox.name}\n`);
  else await printObjects(context, sandboxKind, [await sandbox.object()], { output, isSingle: true });
};
