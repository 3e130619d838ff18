import type { ChildProcess } from "node:child_process";
import { rm } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { identifyProcess } from "@agent-sandbox/kube/engine-record";
import { entryFile, installationDir } from "../installation/installation.ts";
import { HostClient } from "../node/host/host-client.ts";
import { HostError } from "../node/host/host-error.ts";
import { sandboxesMemoryBytes } from "../node/limits.ts";
import type { Logger } from "../telemetry/logger.ts";
import { SupervisedProcess } from "./child-process.ts";
import { writeDataVersion } from "./data-version.ts";
import { type EngineConfig, formatAddress, withAddresses } from "./engine-config.ts";
import { makeDirectories } from "./engine-directories.ts";
import { EngineError } from "./engine-error.ts";
import { writeEngineRecord } from "./engine-record.ts";
import { distributeCredentials } from "./handed-credentials.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { configVariable } from "./role.ts";
import type { RoleName, RoleUsers } from "./role-user.ts";
import { writeRootFile } from "./root-files.ts";
import { writeSecretOut } from "./secret-out.ts";

/**
 * Node's flags when it runs a role. The young generation is bounded in all of them, so that what sandboxes make them do cannot
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
  makeDirectories(layout, config.users);
  let known = config;
  let storeFormat = 0;
  const learn = (facts: Readonly<Record<string, string>>): void => {
    known = withAddresses(known, facts);
    writeRootFile(layout.configFile, JSON.stringify(known));
  };
  learn({});

  const role = (name: RoleName): SupervisedProcess =>
    new SupervisedProcess(
      {
        name,
        program: process.execPath,
        args: [...roleNodeFlags(name), entryFile(`${name}-role`)],
        env: { ...roleEnvironment(name), [configVariable]: layout.configFile },
        logFile: path.join(layout.logsDir, `${name}.log`),
        waitReady: async (child, signal) => {
          const ready = await readyMessage(child, signal);
          const facts = factsOf(name, ready.facts);
          learn(facts);
          if (name !== "control") return;
          handOver(ready.credentials, config, layout);
          storeFormat = Number(facts["storeFormat"]);
        },
      },
      logger,
    );
  const started: SupervisedProcess[] = [];
  const stop = async (): Promise<void> => {
    for (const process of started.toReversed()) await process.stop();
    const { recordFile, configFile, roles } = layout;
    const files = [recordFile, configFile, ...Object.values(roles).map(({ credentialsFile }) => credentialsFile)];
    for (const file of files) await rm(file, { force: true });
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
    writeDataVersion(layout, { version, storeFormat });
    publish(known, layout, version);
  } catch (error) {
    await stop();
    throw error;
  }
  return { stop };
}

/** The addresses that each role may tell: a role that was taken over speaks for itself alone. */
const factNames: Readonly<Record<RoleName, readonly string[]>> = {
  control: ["apiAddress", "metricsAddress", "storeFormat"],
  router: ["routerAddress"],
  node: ["kubeletAddress"],
};

function factsOf(role: RoleName, facts: object): Readonly<Record<string, string>> {
  const told = Object.entries(facts).filter(
    ([name, value]) => factNames[role].includes(name) && typeof value === "string",
  );
  return Object.fromEntries(told) as Record<string, string>;
}

/** Control issues certificates anew at each start, so each start hands them over anew. */
function handOver(message: unknown, { users, kubeconfigOut }: EngineConfig, layout: Layout): void {
  const { adminKubeconfig } = distributeCredentials(message, layout, users);
  if (kubeconfigOut !== undefined) writeSecretOut(kubeconfigOut, adminKubeconfig);
}

/** The privileged helper as a process that is kept alive. */
export function hostProcess(
  config: Pick<EngineConfig, "programs" | "allowRunc" | "hostPathAllowList" | "limits"> & {
    readonly users: Pick<RoleUsers, "node"> & Partial<RoleUsers>;
  },
  layout: Layout,
  logger: Logger,
): SupervisedProcess {
  const { programs, users, limits } = config;
  return new SupervisedProcess(
    {
      name: "sandbox-host",
      program: programs.sandboxHost,
      args: [
        `--data-dir=${layout.dataDir}`,
        `--run-dir=${path.dirname(layout.runDir)}`,
        `--socket=${layout.hostSocket}`,
        `--node-uid=${users.node.uid}`,
        `--node-gid=${users.node.gid}`,
        ...(users.router === undefined ? [] : [`--router-uid=${users.router.uid}`]),
        `--runsc=${programs.runsc}`,
        `--runc=${programs.runc ?? ""}`,
        `--allow-runc=${config.allowRunc}`,
        `--allow-host-path=${config.hostPathAllowList.join(",")}`,
        `--sandboxes-memory=${sandboxesMemoryBytes(limits, os.totalmem())}`,
        `--sandboxes-pids=${limits.sandboxesPids}`,
        `--disk-floor=${limits.reservedDiskBytes}`,
      ],
      logFile: path.join(layout.logsDir, "sandbox-host.log"),
      waitReady: async (_child, signal) => {
        await socketAnswers(layout.hostSocket, signal);
        await assertOwnCgroups(layout, signal);
      },
    },
    logger,
  );
}

/** Refuses to start beside an engine that is seen under the same name: neither this one nor its helper could make a sandbox. */
async function assertOwnCgroups({ hostSocket, dataDir }: Layout, signal: AbortSignal): Promise<void> {
  if (!(await areCgroupsInUse(hostSocket, signal))) return;
  const message = `an engine in another root or container has the same data directory ${dataDir}, and with it the same cgroups; give one of them another --data-dir`;
  throw new EngineError(message, { code: "conflict" });
}

/** What the helper says. It is asked again over another connection where none comes: the socket may have been that of the helper before. */
async function areCgroupsInUse(socketPath: string, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    const host = new HostClient({ socketPath });
    const limit = AbortSignal.timeout(infoTimeoutMs);
    try {
      return (await host.info(AbortSignal.any([signal, limit]))).cgroupsInUse;
    } catch (error) {
      signal.throwIfAborted();
      if (!limit.aborted && !(error instanceof HostError && error.code === "unavailable")) throw error;
      await new Promise((resolve) => setTimeout(resolve, connectRetryMs));
    } finally {
      await host.close();
    }
  }
}

/** What a role says when it does its job. */
export interface ReadyMessage {
  readonly facts: object;
  readonly credentials?: unknown;
}

/** Resolves with a role's ready message. */
export function readyMessage(child: ChildProcess, signal: AbortSignal): Promise<ReadyMessage> {
  return new Promise((resolve, reject) => {
    child.once("message", (message) => {
      // It has no more to say; one that goes on would fill the supervisor's memory.
      child.on("message", () => child.kill("SIGKILL"));
      if (typeof message === "object" && message !== null && "facts" in message) resolve(message as ReadyMessage);
      else reject(new Error("the first message was not that the role is ready"));
    });
    signal.addEventListener("abort", () => reject(signal.reason as Error));
  });
}

// The helper has no message to send; its socket is there within milliseconds of its start.
const connectRetryMs = 20;

/** The helper answers within milliseconds. */
const infoTimeoutMs = 1_000;

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

function publish(config: EngineConfig, layout: Layout, version: string): void {
  const supervisor = identifyProcess(process.pid);
  if (supervisor === undefined) throw new Error("this process has no entry in /proc");
  writeEngineRecord(layout, {
    version,
    dataDir: layout.dataDir,
    supervisor,
    apiUrl: `https://${formatAddress(config.apiListen)}`,
    routerUrl: `http://${formatAddress(config.routerListen)}`,
    metricsUrl: `https://${formatAddress(config.metricsListen)}`,
    kubeconfig: layout.adminKubeconfig,
    nodeSocket: layout.nodeSocket,
    startedAt: new Date().toISOString(),
    installation: installationDir(),
  });
}
