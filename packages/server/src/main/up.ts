import { spawn } from "node:child_process";
import { closeSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { createLogger } from "../telemetry/logger.ts";
import { assertReachable } from "./data-dir.ts";
import { type EngineConfig, type ListenAddress, sandboxesAheadDefault } from "./engine-config.ts";
import { ensureBaseDirectories, ensureLogsDirectory } from "./engine-directories.ts";
import { EngineError } from "./engine-error.ts";
import { EngineLock, lockHolder } from "./engine-lock.ts";
import { type EngineRecord, readEngineRecord } from "./engine-record.ts";
import { favourEngine } from "./favour-engine.ts";
import { type ImageLimitFlags, imageLimits } from "./image-limits.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { type LimitFlags, limitsOf } from "./limit-flags.ts";
import { assertUsable } from "./older-version.ts";
import { ensurePodCidr } from "./pod-network.ts";
import { findPrograms } from "./programs.ts";
import { ensureRoleUsers } from "./role-user.ts";
import { openForAppend } from "./root-files.ts";
import { warnOfAdvisories } from "./runtime-versions.ts";
import { assertSecretTarget } from "./secret-out.ts";
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
  readonly limits?: LimitFlags;
  readonly sandboxesAhead?: number;
}

/** Starts the engine in this process and resolves when it answers. */
export async function up(options: UpOptions): Promise<{ readonly engine: Engine; readonly record: EngineRecord }> {
  const layout = layoutOf(options.dataDir);
  await assertStartable(layout);
  if (options.kubeconfigOut !== undefined) assertSecretTarget(options.kubeconfigOut);
  const lock = EngineLock.take(layout);
  if (lock === undefined) throw takenError(layout);
  lock.announce(layout);
  favourEngine();
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
  ensureBaseDirectories(layout);
  ensureLogsDirectory(layout);
  for (const user of Object.values(await ensureRoleUsers())) assertReachable(layout.dataDir, user);
  const logFile = path.join(layout.logsDir, "supervisor.log");
  const log = openForAppend(logFile);
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
  assertUsable(layout);
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
  return {
    dataDir: layout.dataDir,
    users: await ensureRoleUsers(),
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
    limits: await limitsOf(options.limits ?? {}, layout.dataDir).catch((cause: unknown) => {
      throw new EngineError(cause instanceof Error ? cause.message : String(cause), { cause });
    }),
    nodeName: nodeNameOf(os.hostname()),
    podCidr: await ensurePodCidr(layout.dataDir),
    programs: findPrograms(),
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
