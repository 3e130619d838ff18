import type { ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmod, chown, copyFile, mkdir, rename, rm, stat, writeFile } from "node:fs/promises";
import net from "node:net";
import path from "node:path";
import type { Logger } from "../telemetry/logger.ts";
import { SupervisedProcess } from "./child-process.ts";
import { assertReachable } from "./data-dir.ts";
import { type EngineConfig, formatAddress, withAddresses } from "./engine-config.ts";
import { identifyProcess, writeEngineRecord } from "./engine-record.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { configVariable } from "./role.ts";

/**
 * What Node is told when it runs a role. The young generation is bounded in all of them, so that what sandboxes make them do cannot
 * grow it. Control keeps the whole state in memory and the node carries the streams of sandboxes, so their heaps grow in small
 * steps above what is in use instead of towards what a large machine would allow. Said here and not by the role itself, because
 * the young generation keeps the size it reached while the code was loaded. --optimize-for-size is no way to this: it holds the
 * young generation at one MiB whatever else is said, which costs half as much processor time again.
 */
export function roleNodeFlags(role: string): readonly string[] {
  const lean = role === "control" || role === "node" ? [`--heap-growing-percent=${heapGrowthPercent}`] : [];
  return ["--disable-warning=ExperimentalWarning", `--max-semi-space-size=${youngGenerationMiB}`, ...lean];
}

/** What requests leave behind dies in it; in a smaller one much of it grows old first. */
const youngGenerationMiB = 8;

/** A collection of the whole heap per quarter of it that requests made old. */
const heapGrowthPercent = 25;

/** What the environment of a role says besides the supervisor's own. */
export function roleEnvironment(role: string): Readonly<Record<string, string>> {
  // Values are made and freed by several threads; with an arena for each of them, a tenth of the memory is holes.
  return role === "control" ? { MALLOC_ARENA_MAX: "1" } : {};
}

/** The running engine of one data directory. */
export interface Engine {
  /** Ends all processes of the engine; sandboxes go on. */
  stop(): Promise<void>;
}

/**
 * Starts control and the privileged helper, then node and router, and keeps them alive.
 * Preconditions: the caller is root and no other engine runs on this data directory.
 */
export async function startEngine(config: EngineConfig, logger: Logger, version: string): Promise<Engine> {
  const layout = layoutOf(config.dataDir);
  await makeDirectories(layout, config);
  const configFile = path.join(layout.runDir, `config-${randomUUID()}.json`);
  const writeConfig = async (facts: Readonly<Record<string, string>>): Promise<void> => {
    await writeFile(`${configFile}.new`, JSON.stringify(withAddresses(config, facts)), { mode: 0o644 });
    await rename(`${configFile}.new`, configFile);
  };
  await writeConfig({});

  const facts: Record<string, string> = {};
  const role = (name: string): SupervisedProcess =>
    new SupervisedProcess(
      {
        name,
        program: process.execPath,
        args: [...roleNodeFlags(name), path.join(import.meta.dirname, `${name}-role.ts`)],
        env: { ...roleEnvironment(name), [configVariable]: configFile },
        logFile: path.join(layout.logsDir, `${name}.log`),
        waitReady: async (child, signal) => {
          Object.assign(facts, await readyMessage(child, signal));
          await writeConfig(facts);
          if (name === "control") await copyKubeconfig(config, layout);
        },
      },
      logger,
    );
  const started: SupervisedProcess[] = [];
  const stop = async (): Promise<void> => {
    for (const process of started.toReversed()) await process.stop();
    await rm(layout.recordFile, { force: true });
    await rm(configFile, { force: true });
  };
  try {
    // Node and router need the API and the helper; within a step nothing waits for its neighbour.
    for (const step of [
      [role("control"), hostProcess(config, layout, logger)],
      [role("node"), role("router")],
    ]) {
      started.push(...step);
      await Promise.all(step.map((process) => process.start()));
    }
    await publish(config, layout, facts, version);
  } catch (error) {
    await stop();
    throw error;
  }
  return { stop };
}

/** Control has no right to write where the user wants the file; it issues new certificates at each start, so each start copies anew. */
async function copyKubeconfig({ kubeconfigOut }: EngineConfig, { pkiDir }: Layout): Promise<void> {
  if (kubeconfigOut !== undefined) await copyFile(path.join(pkiDir, "admin.kubeconfig"), kubeconfigOut);
}

/** Makes the directories of an instance, those of the unprivileged processes as theirs. */
export async function makeDirectories(layout: Layout, { user }: Pick<EngineConfig, "user">): Promise<void> {
  const { pkiDir, imagesDir, sandboxesDir, logsDir, runDir } = layout;
  const own = [path.dirname(layout.dbFile), pkiDir, imagesDir, sandboxesDir, logsDir, runDir];
  await mkdir(layout.dataDir, { recursive: true, mode: 0o755 });
  // A directory that was there before may be closed to others; the engine's user must get through it to its own.
  await chmod(layout.dataDir, ((await stat(layout.dataDir)).mode & 0o7777) | 0o111);
  assertReachable(layout.dataDir, user);
  for (const dir of own) {
    await mkdir(dir, { recursive: true });
    await chown(dir, user.uid, user.gid);
    await chmod(dir, dir === runDir ? 0o755 : 0o700);
  }
}

/** The privileged helper as a process that is kept alive. */
export function hostProcess(
  config: Pick<EngineConfig, "programs" | "user" | "hostPathAllowList">,
  layout: Layout,
  logger: Logger,
): SupervisedProcess {
  const { programs, user } = config;
  return new SupervisedProcess(
    {
      name: "sandbox-host",
      program: programs.sandboxHost,
      args: [
        `--data-dir=${layout.dataDir}`,
        `--run-dir=${path.dirname(layout.runDir)}`,
        `--socket=${layout.hostSocket}`,
        `--engine-uid=${user.uid}`,
        `--engine-gid=${user.gid}`,
        `--runsc=${programs.runsc}`,
        `--runc=${programs.runc ?? ""}`,
        `--allow-host-path=${config.hostPathAllowList.join(",")}`,
      ],
      logFile: path.join(layout.logsDir, "sandbox-host.log"),
      waitReady: (_child, signal) => socketAnswers(layout.hostSocket, signal),
    },
    logger,
  );
}

/** Resolves with the facts of a role's ready message. */
export function readyMessage(child: ChildProcess, signal: AbortSignal): Promise<object> {
  return new Promise((resolve, reject) => {
    child.on("message", (message) => {
      if (typeof message === "object" && message !== null && "facts" in message) resolve(message.facts as object);
    });
    signal.addEventListener("abort", () => reject(signal.reason as Error));
  });
}

// The helper has no message to send; its socket is there within milliseconds of its start.
const connectRetryMs = 20;

/** Resolves when a Unix socket accepts connections; rejects with the signal's reason. */
export async function socketAnswers(socket: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const connected = await new Promise<boolean>((resolve) => {
      const connection = net.connect(socket, () => {
        connection.destroy();
        resolve(true);
      });
      connection.once("error", () => resolve(false));
    });
    if (connected) return;
    await new Promise((resolve) => setTimeout(resolve, connectRetryMs));
  }
  throw signal.reason;
}

async function publish(
  config: EngineConfig,
  layout: Layout,
  facts: Readonly<Record<string, string>>,
  version: string,
): Promise<void> {
  const supervisor = identifyProcess(process.pid);
  if (supervisor === undefined) throw new Error("this process has no entry in /proc");
  const address = (name: string, fallback: { host: string; port: number }): string =>
    facts[name] ?? formatAddress(fallback);
  await writeEngineRecord(layout, {
    version,
    dataDir: layout.dataDir,
    supervisor,
    apiUrl: `https://${address("apiAddress", config.apiListen)}`,
    routerUrl: `http://${address("routerAddress", config.routerListen)}`,
    metricsUrl: `http://${address("metricsAddress", config.metricsListen)}`,
    kubeconfig: path.join(layout.pkiDir, "admin.kubeconfig"),
    nodeSocket: layout.nodeSocket,
    startedAt: new Date().toISOString(),
  });
}
