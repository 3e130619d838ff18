import { readFileSync } from "node:fs";
import path from "node:path";
import { rootDir } from "../../scripts/checkout.ts";
import { type Daemon, startDaemon } from "./child.ts";
import { type Cluster, freePorts } from "./cluster.ts";

/** One process of the controller role, as its manifest starts it. */
export interface Replica extends AsyncDisposable {
  readonly daemon: Daemon;
  /** What `/metrics` says. */
  metrics(): Promise<string>;
  /** Ends it as a node that loses power does. */
  kill(): Promise<void>;
}

/** How long a process may take to start on a busy machine. */
const startMaxMs = 120_000;

/** Starts the role with the rights of its ServiceAccount, and resolves when it is ready. */
export async function startReplica(cluster: Cluster, name: string, webhookPort: number): Promise<Replica> {
  const account = "agent-sandbox-controller";
  const user = `system:serviceaccount:agent-sandbox-system:${account}`;
  const groups = ["system:serviceaccounts", "system:serviceaccounts:agent-sandbox-system"];
  const kubeconfig = await cluster.kubeconfigFor(user, groups);
  const [metricsPort = 0, healthPort = 0] = await freePorts(2);
  const args = [
    "--disable-warning=ExperimentalWarning",
    path.join(rootDir, "packages/cli/src/main.ts"),
    "controller",
    "--extensions",
    `--kubeconfig=${kubeconfig}`,
    "--leader-elect=true",
    "--leader-election-namespace=agent-sandbox-system",
    "--webhook-namespace=agent-sandbox-system",
    `--webhook-port=${webhookPort}`,
    `--metrics-bind-address=127.0.0.1:${metricsPort}`,
    `--health-probe-bind-address=127.0.0.1:${healthPort}`,
  ];
  const daemon = startDaemon(name, process.execPath, args, path.join(cluster.dir, `${name}.log`));
  await untilReady(daemon, healthPort).catch(async (error: unknown) => {
    await daemon.stop();
    throw error;
  });
  return {
    daemon,
    metrics: async () => (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text(),
    async kill() {
      process.kill(daemon.pid, "SIGKILL");
      await daemon.stop();
    },
    [Symbol.asyncDispose]: () => daemon.stop(),
  };
}

async function untilReady(daemon: Daemon, port: number): Promise<void> {
  const endMs = Date.now() + startMaxMs;
  for (;;) {
    const ended = daemon.exitCode() !== undefined || Date.now() > endMs;
    if (ended) throw new Error(`${daemon.name} is not ready:\n${readFileSync(daemon.logFile, "utf8").slice(-2_000)}`);
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
    if (ready?.ok === true) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
