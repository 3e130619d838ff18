import type { CreateOptions, Engine, Sandbox } from "@agent-sandbox/sdk";
import { SandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import { loginShell } from "@agent-sandbox/sdk/process/login-shell";
import { usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { parseDurationMs } from "../duration.ts";
import { exitCodes } from "../exit-codes.ts";
import { parsePairs } from "../name-value.ts";
import { Progress } from "../output/progress.ts";
import type { ProcessFlags } from "../process-flags.ts";
import { isEngineError, reportError } from "../report-error.ts";
import { runInSandbox } from "../run-in-sandbox.ts";
import { type SleepFlags, sleepOptions } from "../sleep-options.ts";
import { startEngineProcess } from "../start-engine.ts";
import { implicitFlags } from "../up-flags.ts";

/** Flags of `run`. */
export interface RunFlags extends EngineFlags, ProcessFlags, SleepFlags {
  readonly image?: string;
  readonly fromSnapshot?: string;
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
  readonly service?: string;
}

/** Runs a command in a sandbox of its own. */
export const runVerb: Verb = (context, args, flags) => run(context, args, flags as RunFlags);

async function run(context: Context, command: readonly string[], flags: RunFlags): Promise<number> {
  if (flags.pool !== undefined && flags.image !== undefined) throw usageError("--pool and --image exclude each other");
  if (flags.pool !== undefined && flags.fromSnapshot !== undefined)
    throw usageError("--pool and --from-snapshot exclude each other");
  assertRunnable(command, flags);
  const options = createOptions(flags);
  const { sandbox } = await obtain(context, flags, options);
  if (sandbox === undefined) return exitCodes.sandboxFailed;
  const isLeft = flags.detach === true || flags.service !== undefined;
  const isKept = isLeft || (flags.rm !== true && (flags.keep === true || flags.name !== undefined));
  try {
    const argv = command.length === 0 ? loginShell : command;
    if (!isLeft) return await runInSandbox(context, sandbox, argv, flags);
    if (command.length > 0) await leaveRunning(context, sandbox, argv, flags);
    context.stdout.write(`${sandbox.name}\n`);
    return exitCodes.ok;
  } finally {
    if (!isKept) await sandbox.delete();
  }
}

/** What has no command is an error, except a shell at a terminal and a sandbox that is left to wait for commands. */
function assertRunnable(command: readonly string[], { tty, detach, service }: RunFlags): void {
  if (service !== undefined && command.length === 0)
    throw usageError("--service needs a command", "Write: agent-sandbox run --service NAME -- COMMAND");
  if (command.length === 0 && tty !== true && detach !== true) {
    const how = "agent-sandbox run -it, or agent-sandbox run -d for a sandbox that waits for commands";
    throw usageError("nothing to run", `Write: agent-sandbox run -- COMMAND, ${how}`);
  }
}

/** Starts a command that goes on without this program; its output is in the sandbox's log. */
async function leaveRunning(
  context: Context,
  sandbox: Sandbox,
  argv: readonly string[],
  flags: RunFlags,
): Promise<void> {
  const { spawnOptions } = await import("../process-flags.ts");
  const options = spawnOptions(flags, context);
  if (flags.service === undefined) {
    await sandbox.spawn(argv, { ...options, log: true });
    return;
  }
  if (flags.commandTimeout !== undefined) throw usageError("--service and --command-timeout exclude each other");
  await sandbox.startService(flags.service, argv, options);
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
    if (context.signal.aborted || !(error instanceof SandboxError || isEngineError(error))) throw error;
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
  await startEngineProcess(dataDir, implicitFlags(dataDir));
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
  const { image, fromSnapshot, cpu, memory, disk, runtime, volume = [] } = flags;
  return {
    ...claimOptions(flags),
    ...(image !== undefined && { image }),
    ...(fromSnapshot !== undefined && { fromSnapshot }),
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
