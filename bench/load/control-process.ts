import { fork } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type Credentials, loadKubeconfig, systemClock } from "@agent-sandbox/kube";
import type { EngineConfig } from "../../packages/server/src/main/engine-config.ts";
import { ensureEngineUser } from "../../packages/server/src/main/engine-user.ts";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { configVariable } from "../../packages/server/src/main/role.ts";
import { roleNodeFlags } from "../../packages/server/src/main/supervisor.ts";

const roleFile = path.resolve(import.meta.dirname, "../../packages/server/src/main/control-role.ts");

/** The engine's control process as `up` runs it, without node and router. */
export interface ControlProcess extends AsyncDisposable {
  readonly pid: number;
  readonly admin: Credentials;
}

/** Starts it on a fresh data directory; flags go to Node besides those of the supervisor. */
export async function openControlProcess(nodeFlags: readonly string[] = []): Promise<ControlProcess> {
  const dataDir = mkdtempSync(path.join(tmpdir(), "bench-control-"));
  const layout = layoutOf(dataDir);
  const { user } = prepare(dataDir);
  const nowhere = { host: "127.0.0.1", port: 0 };
  const config: EngineConfig = {
    dataDir,
    user,
    apiListen: nowhere,
    routerListen: nowhere,
    metricsListen: nowhere,
    kubeletListen: nowhere,
    logLevel: "warn",
    auditLevel: "off",
    clusterDomain: "cluster.local",
    nodeName: "bench",
    podCidr: "10.200.0.0/16",
    sandboxdPath: "/nonexistent",
    allowRunc: false,
    hostPathAllowList: [],
    programs: { runsc: "", runscVersion: "", sandboxd: "", sandboxHost: "" },
  };
  const configFile = path.join(dataDir, "config.json");
  writeFileSync(configFile, JSON.stringify(config));
  const log = openSync(path.join(dataDir, "control.log"), "a");
  const child = fork(roleFile, {
    execArgv: [...roleNodeFlags("control"), ...nodeFlags],
    env: { ...process.env, [configVariable]: configFile },
    stdio: ["ignore", log, "inherit", "ipc"],
  });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  await new Promise<void>((resolve, reject) => {
    child.once("message", () => resolve());
    child.once("exit", (code) => reject(new Error(`the control process ended with code ${code}`)));
  });
  const { credentials } = await loadKubeconfig({
    path: path.join(layout.pkiDir, "admin.kubeconfig"),
    clock: systemClock,
  });
  return {
    pid: child.pid ?? 0,
    admin: credentials,
    async [Symbol.asyncDispose]() {
      child.kill("SIGTERM");
      await gone;
      rmSync(dataDir, { recursive: true, force: true });
      rmSync(layout.runDir, { recursive: true, force: true });
    },
  };
}

/** The directories that the supervisor makes, for the user it would give them to. */
function prepare(dataDir: string): Pick<EngineConfig, "user"> {
  const isRoot = process.getuid?.() === 0;
  const user = isRoot ? ensureEngineUser() : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const { dbFile, pkiDir, logsDir, runDir } = layoutOf(dataDir);
  chmodSync(dataDir, 0o755);
  for (const dir of [path.dirname(dbFile), pkiDir, logsDir, runDir]) {
    mkdirSync(dir, { recursive: true });
    chownSync(dir, user.uid, user.gid);
  }
  return { user };
}
