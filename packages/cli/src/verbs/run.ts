import type { CreateOptions, Engine, Sandbox } from "@agent-sandbox/sdk";
import { SandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import { usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { parseDurationMs } from "../duration.ts";
import { exitCodes } from "../exit-codes.ts";
import { parsePairs } from "../name-value.ts";
import { Progress } from "../output/progress.ts";
import type { ProcessFlags } from "../process-flags.ts";
import { reportError } from "../report-error.ts";
import { runInSandbox } from "../run-in-sandbox.ts";
import { type SleepFlags, sleepOptions } from "../sleep-options.ts";
import { implicitArgs, startEngineProcess } from "../start-engine.ts";

/** Flags of `run`. */
export interface RunFlags extends EngineFlags, ProcessFlags, SleepFlags {
  readonly image?: string;
  readonly pool?: string;
  readonly name?: string;
  readonly keep?: boolean;
  readonly rm?: boolean;
  readonly cpu?: string;
  readonly memory?: string;
  readonly disk?: string;
  readonly volume?: string[];
  readonly runtime?: string;
  readonly ttl?: string;
  readonly label?: string[];
  readonly detach?: boolean;
}

/** Runs a command in a sandbox of its own. */
export const runVerb: Verb = (context, args, flags) => run(context, args, flags as RunFlags);

async function run(context: Context, command: readonly string[], flags: RunFlags): Promise<number> {
  if (flags.pool !== undefined && flags.image !== undefined) throw usageError("--pool and --image exclude each other");
  if (command.length === 0 && flags.tty !== true)
    throw usageError("nothing to run", "Write: agent-sandbox run -- COMMAND, or agent-sandbox run -it");
  const options = createOptions(flags);
  const { sandbox } = await obtain(context, flags, options);
  if (sandbox === undefined) return exitCodes.sandboxFailed;
  const isKept = flags.detach === true || (flags.rm !== true && (flags.keep === true || flags.name !== undefined));
  try {
    const argv = command.length === 0 ? ["/bin/sh", "-l"] : command;
    if (flags.detach !== true) return await runInSandbox(context, sandbox, argv, flags);
    const { spawnOptions } = await import("../process-flags.ts");
    await sandbox.spawn(argv, spawnOptions(flags, context));
    context.stdout.write(`${sandbox.name}\n`);
    return exitCodes.ok;
  } finally {
    if (!isKept) await sandbox.delete();
  }
}

/** The sandbox; where it cannot be had, the reason is printed and nothing is returned. */
async function obtain(context: Context, flags: RunFlags, options: CreateOptions): Promise<{ sandbox?: Sandbox }> {
  using progress = new Progress(context);
  try {
    const engine = await engineOrStart(context, flags, progress);
    const { Sandbox } = await import("@agent-sandbox/sdk/sandbox");
    const { signal } = context;
    const common = { engine, signal, onProgress: (text: string) => progress.show(text) };
    progress.show("starting the sandbox");
    const { pool, name } = flags;
    if (pool !== undefined) return { sandbox: await Sandbox.claim(pool, { ...claimOptions(flags), ...common }) };
    if (name !== undefined) return { sandbox: await Sandbox.open(name, { ...options, ...common }) };
    return { sandbox: await Sandbox.create({ ...options, ...common }) };
  } catch (error) {
    progress.clear();
    if (context.signal.aborted || !(error instanceof SandboxError)) throw error;
    reportError(error, context);
    return {};
  }
}

async function engineOrStart(context: Context, flags: RunFlags, progress: Progress): Promise<Engine> {
  try {
    return await openEngine(flags);
  } catch (error) {
    const isMissing = error instanceof SandboxError && error.code === "engine-not-found";
    if (!isMissing || isNamed(flags, context)) throw error;
  }
  progress.show("starting the engine");
  const dataDir = dataDirOf(flags, context);
  await startEngineProcess(dataDir, implicitArgs(dataDir));
  return openEngine(flags);
}

/** An engine that was named and is not there is not replaced by another. */
function isNamed({ kubeconfig, context: name }: RunFlags, { env }: Context): boolean {
  return [kubeconfig, name, env["AGENT_SANDBOX_KUBECONFIG"], env["AGENT_SANDBOX_CONTEXT"]].some((value) =>
    Boolean(value),
  );
}

function claimOptions({ ttl, label = [] }: RunFlags) {
  return {
    ...(ttl !== undefined && { ttlMs: parseDurationMs("--ttl", ttl) }),
    ...(label.length > 0 && { labels: parsePairs("--label", label) }),
  };
}

function createOptions(flags: RunFlags): CreateOptions {
  const { image, cpu, memory, disk, runtime, volume = [] } = flags;
  return {
    ...claimOptions(flags),
    ...(image !== undefined && { image }),
    ...(cpu !== undefined && { cpu }),
    ...(memory !== undefined && { memory }),
    ...(disk !== undefined && { disk }),
    ...(runtime !== undefined && { runtime }),
    ...sleepOptions(flags),
    ...(volume.length > 0 && { volumes: volume.map(parseVolume) }),
  };
}

/** Reads `/work:10Gi`. */
function parseVolume(text: string): { path: string; size: string } {
  const match = /^(\/[^:]*):(\d[\w.]*)$/.exec(text);
  if (match === null) throw usageError(`--volume: '${text}' is not PATH:SIZE, for example /work:10Gi`);
  return { path: match[1] ?? "", size: match[2] ?? "" };
}
