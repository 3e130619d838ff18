import { watchFile } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { FlagError, wantsHelp } from "../controllers/process/go-flags.ts";
import { entryFile } from "../installation/installation.ts";
import { createLogger, type Logger } from "../telemetry/logger.ts";
import { archiveSettingsOf, ensureArchivePlace } from "./archive-place.ts";
import { SupervisedProcess } from "./child-process.ts";
import { parseSandboxesAhead } from "./engine-config.ts";
import { ensureBaseDirectories, makeDirectories } from "./engine-directories.ts";
import { favourEngine } from "./favour-engine.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { limitsOf } from "./limit-flags.ts";
import type { ClusterNodeConfig } from "./node-cluster-config.ts";
import {
  archiveFlagsOf,
  imageLimitsOf,
  labelsOf,
  limitFlagsOf,
  listOf,
  type NodeFlagValues,
  nodeUsage,
  parseNodeFlags,
  taintsOf,
} from "./node-flags.ts";
import { ensurePodCidr } from "./pod-network.ts";
import type { StartQuestion } from "./preflight/look.ts";
import { assertStartable } from "./preflight/preflight.ts";
import { findPrograms } from "./programs.ts";
import { configVariable } from "./role.ts";
import { ensureRoleUser } from "./role-user.ts";
import { writeRootFile } from "./root-files.ts";
import { hostProcess, readyMessage } from "./supervisor.ts";
import { nodeNameOf } from "./up.ts";
import { readVersion } from "./version.ts";

/** How often credentials are looked at; they are renewed days before they end. */
const credentialsLookEveryMs = 60_000;

/**
 * The `node` role: joins this machine to a cluster as a Node whose Pods are gVisor sandboxes. Resolves with the exit code: 0 after a clean
 * end, 1 on failure, 2 for bad flags; throws where this machine cannot be a node. Sandboxes go on when it ends. Loaded by path.
 */
export async function runProcess(args: readonly string[]): Promise<number> {
  if (wantsHelp(args)) {
    process.stdout.write(nodeUsage());
    return 0;
  }
  let flags: NodeFlagValues;
  try {
    flags = parseNodeFlags(args);
  } catch (error) {
    if (!(error instanceof FlagError)) throw error;
    process.stderr.write(`agent-sandbox node: ${error.message}\n`);
    return 2;
  }
  if (flags.version) {
    process.stdout.write(`agent-sandbox ${readVersion()}\n`);
    return 0;
  }
  const warnings = await assertStartable(startQuestion(flags));
  const logger = createLogger({ component: "node-supervisor", level: flags["log-level"] });
  for (const warning of warnings) logger.warn(warning);
  const stopped = Promise.withResolvers<string>();
  for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => stopped.resolve(name));
  try {
    await supervise(flags, logger, stopped.promise);
    return 0;
  } catch (error) {
    logger.error({ err: error }, "the node failed");
    return 1;
  }
}

function startQuestion(flags: NodeFlagValues): StartQuestion {
  const { "node-ip": host, port } = flags;
  return {
    layout: layoutOf(flags["data-dir"]),
    // Without --node-ip the address is found later, and is one of this machine's.
    listeners: host === "" ? [] : [{ flag: "--node-ip and --port", address: { host, port } }],
    limits: limitFlagsOf(flags),
    nowMs: Date.now(),
  };
}

async function supervise(flags: NodeFlagValues, logger: Logger, stopped: Promise<string>): Promise<void> {
  favourEngine();
  const layout = layoutOf(flags["data-dir"]);
  const config = await configOf(flags, layout);
  makeDirectories(layout, config.users);
  writeRootFile(layout.configFile, JSON.stringify(config));
  const node = nodeProcess(layout, logger);
  const processes = [hostProcess(config, layout, logger), node];
  const started: SupervisedProcess[] = [];
  try {
    for (const process of processes) {
      started.push(process);
      await process.start();
    }
    // The child has given up root and may no longer see the file; it takes up new credentials by starting again.
    if (config.kubeconfig !== "")
      watchFile(config.kubeconfig, { persistent: false, interval: credentialsLookEveryMs }, (now, before) => {
        if (now.mtimeMs !== before.mtimeMs && node.pid !== undefined) process.kill(node.pid, "SIGTERM");
      });
    logger.info({ node: config.nodeName, podCidr: config.podCidr, dataDir: layout.dataDir }, "ready");
    logger.info({ why: await stopped }, "ending");
  } catch (cause) {
    throw new Error(`the node did not start: ${await lastWords(layout)}`, { cause });
  } finally {
    for (const process of started.toReversed()) await process.stop();
    await rm(layout.configFile, { force: true });
  }
}

function nodeProcess(layout: Layout, logger: Logger): SupervisedProcess {
  return new SupervisedProcess(
    {
      name: "node",
      program: process.execPath,
      args: ["--disable-warning=ExperimentalWarning", entryFile("node-cluster-role")],
      env: { [configVariable]: layout.configFile },
      logFile: path.join(layout.logsDir, "node.log"),
      waitReady: async (child, signal) => {
        await readyMessage(child, signal);
      },
    },
    logger,
  );
}

async function configOf(flags: NodeFlagValues, layout: Layout): Promise<ClusterNodeConfig> {
  ensureBaseDirectories(layout);
  const programs = findPrograms();
  const nodeName = flags["hostname-override"] === "" ? nodeNameOf(os.hostname()) : flags["hostname-override"];
  const { "tls-cert-file": certFile, "tls-private-key-file": keyFile } = flags;
  const node = await ensureRoleUser("node");
  const archive = archiveSettingsOf(archiveFlagsOf(flags));
  if (archive !== undefined) ensureArchivePlace(archive, node);
  return {
    dataDir: layout.dataDir,
    users: { node },
    logLevel: flags["log-level"],
    clusterDomain: flags["cluster-domain"],
    nodeName,
    podCidr: flags["pod-cidr"] === "" ? await ensurePodCidr(layout.dataDir) : flags["pod-cidr"],
    allowRunc: flags["allow-runc"],
    hostPathAllowList: listOf(flags["allow-host-path"]),
    programs,
    kubeletListen: { host: flags["node-ip"] === "" ? ownAddress() : flags["node-ip"], port: flags.port },
    kubeconfig: flags.kubeconfig === "" ? "" : path.resolve(flags.kubeconfig),
    ...(archive !== undefined && { archive }),
    ...(certFile !== "" && { serving: { certFile, keyFile } }),
    clientCaFile: flags["client-ca-file"],
    podsMax: flags["max-pods"],
    sandboxesAhead: parseSandboxesAhead(flags["sandboxes-ahead"]),
    imageCollection: imageLimitsOf(flags).limits,
    limits: await limitsOf(limitFlagsOf(flags), layout.dataDir),
    labels: { "kubernetes.io/hostname": nodeName, ...labelsOf(flags["node-labels"]) },
    taints: taintsOf(flags["register-with-taints"]),
  };
}

/** The first address of this machine that others can reach. */
function ownAddress(): string {
  const all = Object.values(os.networkInterfaces()).flatMap((entries) => entries ?? []);
  const found = all.find(({ family, internal }) => family === "IPv4" && !internal);
  if (found === undefined) throw new Error("this machine has no address that an API server could dial; give --node-ip");
  return found.address;
}

/** The end of the child's log says why it could not start. */
async function lastWords({ logsDir }: Layout): Promise<string> {
  const text = await readFile(path.join(logsDir, "node.log"), "utf8").catch(() => "");
  return text.trimEnd().split("\n").slice(-5).join("\n") || `see ${logsDir}`;
}
