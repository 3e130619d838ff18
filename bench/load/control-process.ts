import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { type Credentials, loadKubeconfig, systemClock } from "@agent-sandbox/kube";
import type { EngineConfig } from "../../packages/server/src/main/engine-config.ts";
import { makeDirectories } from "../../packages/server/src/main/engine-directories.ts";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { configVariable } from "../../packages/server/src/main/role.ts";
import { ensureRoleUsers } from "../../packages/server/src/main/role-user.ts";
import { roleEnvironment, roleNodeFlags } from "../../packages/server/src/main/supervisor.ts";
import { collectionDefaults } from "../../packages/server/src/node/images/plan-collection.ts";
import { planLimits } from "../../packages/server/src/node/limits.ts";

const roleFile = path.resolve(import.meta.dirname, "../../packages/server/src/main/control-role.ts");

/** The engine's control process as `up` runs it, without node and router. */
export interface ControlProcess extends AsyncDisposable {
  pid(): number;
  metrics(): Promise<string>;
  readonly admin: Credentials;
  /** Kills it and starts it again on the same files and the same port; resolves, when it serves, with the moment of the start. */
  restart(): Promise<number>;
}

/** Starts it on a fresh data directory; flags go to Node besides those of the supervisor. */
export async function openControlProcess(nodeFlags: readonly string[] = []): Promise<ControlProcess> {
  const dataDir = mkdtempSync(path.join(tmpdir(), "bench-control-"));
  const layout = layoutOf(dataDir);
  const configFile = path.join(dataDir, "config.json");
  const config = await configOf(dataDir);
  writeFileSync(configFile, JSON.stringify(config));
  let running = await startRole({ dataDir, configFile, nodeFlags });
  const [host = "", port = ""] = running.facts.apiAddress.split(":");
  writeFileSync(configFile, JSON.stringify({ ...config, apiListen: { host, port: Number(port) } }));
  const file = path.join(dataDir, "admin.kubeconfig");
  writeFileSync(file, running.adminKubeconfig);
  const { credentials } = await loadKubeconfig({ path: file, clock: systemClock });
  return {
    pid: () => running.child.pid ?? 0,
    metrics: () => readMetrics(`https://${running.facts.metricsAddress}/metrics`, credentials),
    admin: credentials,
    async restart() {
      await running.end("SIGKILL");
      const startMs = performance.now();
      running = await startRole({ dataDir, configFile, nodeFlags });
      return startMs;
    },
    async [Symbol.asyncDispose]() {
      await running.end("SIGTERM");
      rmSync(dataDir, { recursive: true, force: true });
      rmSync(layout.runDir, { recursive: true, force: true });
    },
  };
}

/** The metrics, read with the administrator's credentials. */
async function readMetrics(url: string, { ca, cert, key }: Credentials): Promise<string> {
  const request = https.get(url, { ca, cert, key, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return text(response);
}

interface Facts {
  readonly apiAddress: string;
  readonly metricsAddress: string;
}

interface ControlMessage {
  readonly facts: Facts;
  readonly credentials: { readonly adminKubeconfig: string };
}

interface RunningRole {
  readonly child: ChildProcess;
  readonly facts: Facts;
  readonly adminKubeconfig: string;
  end(signal: NodeJS.Signals): Promise<void>;
}

async function startRole(options: {
  readonly dataDir: string;
  readonly configFile: string;
  readonly nodeFlags: readonly string[];
}): Promise<RunningRole> {
  const { dataDir, configFile, nodeFlags } = options;
  const log = openSync(path.join(dataDir, "control.log"), "a");
  const child = fork(roleFile, {
    execArgv: [...roleNodeFlags("control"), ...nodeFlags],
    env: { ...process.env, ...roleEnvironment("control"), [configVariable]: configFile },
    stdio: ["ignore", log, "inherit", "ipc"],
  });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const { facts, credentials } = await new Promise<ControlMessage>((resolve, reject) => {
    child.once("message", (message) => resolve(message as ControlMessage));
    child.once("exit", (code) => reject(new Error(`the control process ended with code ${code}`)));
  });
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    child.kill(signal);
    await gone;
  };
  return { child, facts, adminKubeconfig: credentials.adminKubeconfig, end };
}

async function configOf(dataDir: string): Promise<EngineConfig> {
  const nowhere = { host: "127.0.0.1", port: 0 };
  return {
    dataDir,
    users: await prepareDirectories(dataDir),
    apiListen: nowhere,
    routerListen: nowhere,
    metricsListen: nowhere,
    kubeletListen: nowhere,
    logLevel: "warn",
    auditLevel: "off",
    clusterDomain: "cluster.local",
    nodeName: "bench",
    podCidr: "10.200.0.0/16",
    allowRunc: false,
    sandboxesAhead: 0,
    hostPathAllowList: [],
    imageCollection: collectionDefaults,
    limits: planLimits({}, { memoryBytes: 8 * 2 ** 30, diskBytes: 100 * 2 ** 30, pidsMax: 32_768 }).limits,
    programs: { runsc: "", runscVersion: "", sandboxd: "", sandboxHost: "" },
  };
}

/** Makes the directories that the supervisor makes; an unprivileged process stays who it is, and makes its own. */
async function prepareDirectories(dataDir: string): Promise<EngineConfig["users"]> {
  if (process.getuid?.() === 0) {
    const users = await ensureRoleUsers();
    makeDirectories(layoutOf(dataDir), users);
    return users;
  }
  const own = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  return { control: own, router: own, node: own };
}
