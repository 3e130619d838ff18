import { spawn } from "node:child_process";
import { closeSync, fstatSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { type EngineRecord } from "@agent-sandbox/kube/engine-record";
import type { ArchiveFlags } from "../node/archive/archive-settings.ts";
import { createLogger } from "../telemetry/logger.ts";
import { archiveSettingsOf, ensureArchivePlace } from "./archive-place.ts";
import { assertReachable } from "./data-dir.ts";
import { type EngineConfig, type ListenAddress, sandboxesAheadDefault } from "./engine-config.ts";
import { ensureBaseDirectories, ensureLogsDirectory } from "./engine-directories.ts";
import { EngineError } from "./engine-error.ts";
import { EngineLock, otherHolder, settledRecord } from "./engine-lock.ts";
import { readEngineRecord } from "./engine-record.ts";
import { favourEngine } from "./favour-engine.ts";
import { type ImageLimitFlags, imageLimits } from "./image-limits.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { type LimitFlags, limitsOf } from "./limit-flags.ts";
import { ensureNodeName } from "./node-name.ts";
import { assertUsable } from "./older-version.ts";
import { ensurePodCidr } from "./pod-network.ts";
import type { Listener, StartQuestion } from "./preflight/look.ts";
import { assertStartable } from "./preflight/preflight.ts";
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
  readonly archive?: ArchiveFlags;
}

/** Starts the engine in this process and resolves when it answers. */
export async function up(options: UpOptions): Promise<{ readonly engine: Engine; readonly record: EngineRecord }> {
  const layout = layoutOf(options.dataDir);
  const warnings = await assertReady(options);
  const lock = await EngineLock.take(layout);
  lock.announce(layout);
  favourEngine();
  try {
    // Again under the lock: a restore may have begun since the first look, and have been killed.
    assertUsable(layout);
    const logger = createLogger({ component: "supervisor", level: options.logLevel });
    for (const warning of warnings) logger.warn(warning);
    await warnOfAdvisories(logger, { withRunc: options.allowRunc });
    const engine = await startEngine(await configOf(options, layout), logger, readVersion());
    const record = readEngineRecord(layout);
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

/** Starts the engine as a process of its own and resolves when it answers. `program` runs `up` in the foreground with the same options. */
export async function startDetached(
  options: UpOptions,
  program: { readonly file: string; readonly args: readonly string[] },
): Promise<EngineRecord> {
  const layout = layoutOf(options.dataDir);
  // Another command's engine that is starting, or one that becomes another version, is as good as one of our own.
  if (otherHolder(layout) !== undefined && readEngineRecord(layout) === undefined) {
    const other = await settledRecord(layout, startTimeoutMs);
    if (other !== undefined) return other;
  }
  await assertReady(options);
  ensureBaseDirectories(layout);
  ensureLogsDirectory(layout);
  for (const user of Object.values(await ensureRoleUsers())) assertReachable(layout.dataDir, user);
  const logFile = path.join(layout.logsDir, "supervisor.log");
  const log = openForAppend(logFile);
  const logBytes = fstatSync(log).size;
  const child = spawn(program.file, program.args, { detached: true, stdio: ["ignore", log, log] });
  closeSync(log);
  const exited = new Promise<never>((_resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => {
      // Two commands at once: the other one's engine is on its way, and it is as good as ours.
      if (otherHolder(layout) === undefined)
        reject(
          new EngineError(
            `the engine ended at once${reasonIn(logFile, logBytes) ?? ` (exit code ${code})`}; see ${logFile}`,
          ),
        );
    });
  });
  const record = await Promise.race([waitForRecord(layout), exited]);
  child.removeAllListeners("exit");
  child.unref();
  return record;
}

/** The sentence that a command ended with, out of what it wrote after so many bytes of its log. */
function reasonIn(logFile: string, fromByte: number): string | undefined {
  const lines = readFileSync(logFile).subarray(fromByte).toString("utf8").trimEnd().split("\n");
  const sentence = lines.findLast((line) => line.startsWith("error: "));
  return sentence?.replace("error", "");
}

/** What is asked of the machine before an engine with these options starts. */
export function startQuestionOf(options: UpOptions): StartQuestion {
  const { routerInsecureListen } = options;
  const listeners: Listener[] = [
    { flag: "--listen", address: options.apiListen },
    { flag: "--router-listen", address: options.routerListen },
    { flag: "--metrics-listen", address: options.metricsListen },
    ...(routerInsecureListen === undefined ? [] : [{ flag: "--insecure-listen", address: routerInsecureListen }]),
  ];
  return { layout: layoutOf(options.dataDir), listeners, limits: options.limits ?? {}, nowMs: Date.now() };
}

/** Throws before anything is made where the options or the machine do not allow an engine; resolves with what to warn of. */
async function assertReady(options: UpOptions): Promise<readonly string[]> {
  imageCollectionOf(options);
  archiveSettingsOf(options.archive ?? {});
  if (options.kubeconfigOut !== undefined) assertSecretTarget(options.kubeconfigOut);
  return assertStartable(startQuestionOf(options));
}

async function configOf(options: UpOptions, layout: Layout): Promise<EngineConfig> {
  const { kubeconfigOut, routerInsecureListen } = options;
  const users = await ensureRoleUsers();
  const archive = archiveSettingsOf(options.archive ?? {});
  if (archive !== undefined) ensureArchivePlace(archive, users.node);
  return {
    dataDir: layout.dataDir,
    users,
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
      throw new EngineError(cause instanceof Error ? cause.message : String(cause), { code: "usage", cause });
    }),
    nodeName: await ensureNodeName(layout.dataDir, nodeNameOf(os.hostname())),
    podCidr: await ensurePodCidr(layout.dataDir),
    programs: findPrograms(),
    ...(archive !== undefined && { archive }),
    ...(kubeconfigOut !== undefined && { kubeconfigOut }),
    ...(routerInsecureListen !== undefined && { routerInsecureListen }),
  };
}

function imageCollectionOf({ images = {} }: UpOptions): EngineConfig["imageCollection"] {
  const { limits, errors } = imageLimits(images);
  if (errors.length > 0) throw new EngineError(errors.join("; "), { code: "usage" });
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
    const record = readEngineRecord(layout);
    if (record !== undefined) return record;
    await new Promise((resolve) => setTimeout(resolve, recordLookEveryMs));
  }
  throw new EngineError(`the engine did not answer within ${startTimeoutMs / 1000} s; see ${layout.logsDir}`);
}
