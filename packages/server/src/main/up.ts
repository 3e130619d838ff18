import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, existsSync, openSync } from "node:fs";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { createLogger, type Logger } from "../telemetry/logger.ts";
import { assertReachable } from "./data-dir.ts";
import { type EngineConfig, type ListenAddress, sandboxesAheadDefault } from "./engine-config.ts";
import { EngineError } from "./engine-error.ts";
import { EngineLock, lockHolder } from "./engine-lock.ts";
import { type EngineRecord, readEngineRecord } from "./engine-record.ts";
import { ensureEngineUser } from "./engine-user.ts";
import { type ImageLimitFlags, imageLimits } from "./image-limits.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { ensurePodCidr } from "./pod-network.ts";
import { findPrograms } from "./programs.ts";
import { warnOfAdvisories } from "./runtime-versions.ts";
import { type Engine, startEngine } from "./supervisor.ts";
import { readVersion } from "./version.ts";

/** What `up` can be told; everything has a default. */
export interface UpOptions {
  readonly dataDir: string;
  readonly apiListen: ListenAddress;
  readonly routerListen: ListenAddress;
  readonly routerInsecureListen?: ListenAddress;
  readonly metricsListen: ListenAddress;
  readonly kubeconfigOut?: string;
  readonly logLevel: string;
  readonly auditLevel?: EngineConfig["auditLevel"];
  readonly allowRunc: boolean;
  readonly hostPathAllowList: readonly string[];
  readonly images?: ImageLimitFlags;
  readonly sandboxesAhead?: number;
}

/** Starts the engine in this process and resolves when it answers. */
export async function up(options: UpOptions): Promise<{ readonly engine: Engine; readonly record: EngineRecord }> {
  const layout = layoutOf(options.dataDir);
  await assertStartable(layout);
  const lock = await EngineLock.take(layout);
  if (lock === undefined) throw takenError(layout);
  lock.announce(layout);
  try {
    const logger = createLogger({ component: "supervisor", level: options.logLevel });
    await warnOfAdvisories(logger, { withRunc: options.allowRunc });
    const engine = await startEngine(await configOf(options, layout), logger, readVersion());
    const record = await readEngineRecord(layout);
    if (record === undefined) throw new EngineError(`the engine left no record in ${layout.recordFile}`);
    const stop = async (): Promise<void> => {
      await engine.stop();
      lock[Symbol.dispose]();
    };
    return { engine: { stop }, record };
  } catch (error) {
    lock[Symbol.dispose]();
    throw error;
  }
}

/** A first start unpacks nothing and pulls nothing, so it takes a second or two; this is for a machine that swaps. */
const startTimeoutMs = 60_000;

/** Starts the engine as a process of its own and resolves when it answers. `program` runs `up` in the foreground. */
export async function startDetached(
  dataDir: string,
  program: { readonly file: string; readonly args: readonly string[] },
): Promise<EngineRecord> {
  const layout = layoutOf(dataDir);
  await assertStartable(layout);
  await mkdir(layout.logsDir, { recursive: true });
  assertReachable(layout.dataDir, ensureEngineUser());
  const logFile = path.join(layout.logsDir, "supervisor.log");
  const log = openSync(logFile, "a", 0o640);
  const child = spawn(program.file, program.args, { detached: true, stdio: ["ignore", log, log] });
  closeSync(log);
  const exited = new Promise<never>((_resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => {
      // Two commands at once: the other one's engine is on its way, and it is as good as ours.
      if (lockHolder(layout) === undefined)
        reject(new EngineError(`the engine ended at once (exit code ${code}); see ${logFile}`));
    });
  });
  const record = await Promise.race([waitForRecord(layout), exited]);
  child.removeAllListeners("exit");
  child.unref();
  return record;
}

async function assertStartable(layout: Layout): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new EngineError("the engine needs root to make namespaces, mounts and cgroups; run it again as root");
  }
  const running = await readEngineRecord(layout);
  if (running !== undefined) {
    throw new EngineError(
      `an engine is running on ${layout.dataDir} already (pid ${running.supervisor.pid}, API ${running.apiUrl}); stop it with agent-sandbox down`,
    );
  }
}

/** For a directory that an engine holds which has no record yet or no longer. */
function takenError(layout: Layout): EngineError {
  const pid = lockHolder(layout)?.pid ?? "unknown";
  return new EngineError(
    `another command starts or stops an engine on ${layout.dataDir} (pid ${pid}); try again when it is done`,
  );
}

async function configOf(options: UpOptions, layout: Layout): Promise<EngineConfig> {
  const { kubeconfigOut, routerInsecureListen } = options;
  await mkdir(layout.dataDir, { recursive: true, mode: 0o755 });
  const programs = findPrograms();
  return {
    dataDir: layout.dataDir,
    user: ensureEngineUser(),
    apiListen: options.apiListen,
    routerListen: options.routerListen,
    metricsListen: options.metricsListen,
    kubeletListen: { host: "127.0.0.1", port: 0 },
    logLevel: options.logLevel,
    auditLevel: options.auditLevel ?? "off",
    clusterDomain: "cluster.local",
    allowRunc: options.allowRunc,
    hostPathAllowList: options.hostPathAllowList,
    sandboxesAhead: options.sandboxesAhead ?? sandboxesAheadDefault,
    imageCollection: imageCollectionOf(options),
    nodeName: nodeNameOf(os.hostname()),
    podCidr: await ensurePodCidr(layout.dataDir),
    sandboxdPath: await keepProgram(programs.sandboxd, path.join(layout.dataDir, "bin")),
    programs,
    ...(kubeconfigOut !== undefined && { kubeconfigOut }),
    ...(routerInsecureListen !== undefined && { routerInsecureListen }),
  };
}

function imageCollectionOf({ images = {} }: UpOptions): EngineConfig["imageCollection"] {
  const { limits, errors } = imageLimits(images);
  if (errors.length > 0) throw new EngineError(errors.join("; "));
  return limits;
}

/** A host name as the name of a Node object: lower case, and nothing but letters, digits, hyphens and dots. */
export function nodeNameOf(hostname: string): string {
  const name = hostname
    .toLowerCase()
    .replace(/[^a-z0-9.-]/g, "-")
    .replace(/^[.-]+|[.-]+$/g, "");
  return name === "" ? "node" : name;
}

/** Copies a program to a name made from its contents, so that sandboxes that run an older one keep it. */
export async function keepProgram(file: string, dir: string): Promise<string> {
  const bytes = await readFile(file);
  const name = `${path.basename(file)}-${createHash("sha256").update(bytes).digest("hex").slice(0, 12)}`;
  const kept = path.join(dir, name);
  if (existsSync(kept)) return kept;
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const partial = `${kept}.${process.pid}`;
  await writeFile(partial, bytes, { mode: 0o755 });
  await rename(partial, kept);
  return kept;
}

// The record is one small file in memory; looking for it costs microseconds and this happens once per engine.
const recordLookEveryMs = 15;

async function waitForRecord(layout: Layout): Promise<EngineRecord> {
  const deadlineMs = performance.now() + startTimeoutMs;
  while (performance.now() < deadlineMs) {
    const record = await readEngineRecord(layout);
    if (record !== undefined) return record;
    await new Promise((resolve) => setTimeout(resolve, recordLookEveryMs));
  }
  throw new EngineError(`the engine did not answer within ${startTimeoutMs / 1000} s; see ${layout.logsDir}`);
}

/** Logs and keeps the process going until it is told to end. */
export async function serveUntilSignal(engine: Engine, logger: Logger): Promise<void> {
  const signal = await new Promise<NodeJS.Signals>((resolve) => {
    for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, resolve);
  });
  logger.info({ signal }, "stopping the engine");
  await engine.stop();
}
