import { spawn } from "node:child_process";
import path from "node:path";
import { expect } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { freePorts } from "./cluster.ts";

/** Whose rights a role has, and where it keeps its files. */
interface RoleGround {
  readonly kubeconfig: string;
  readonly dir: string;
}

/** Starts a role as its Pod would, on ports of this machine that are free; later flags win over earlier ones. */
export async function startRole(args: readonly string[], { kubeconfig, dir }: RoleGround) {
  const [health = 0, metrics = 0, serving = 0] = await freePorts(3);
  const serve =
    args[0] === "controller"
      ? [`--webhook-port=${serving}`, `--webhook-cert-dir=${dir}/webhook`, "--leader-election-namespace=default"]
      : [`--http-bind-address=127.0.0.1:${serving}`];
  const here = [
    `--health-probe-bind-address=127.0.0.1:${health}`,
    `--metrics-bind-address=127.0.0.1:${metrics}`,
    `--kubeconfig=${kubeconfig}`,
  ];
  const main = path.join(rootDir, "packages/cli/src/main.ts");
  const child = spawn(process.execPath, [main, ...args, ...serve, ...here], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  return {
    async ready(): Promise<void> {
      const deadlineMs = Date.now() + 60_000;
      while (Date.now() < deadlineMs && child.exitCode === null) {
        const answer = await fetch(`http://127.0.0.1:${health}/readyz`).catch(() => undefined);
        if (answer?.status === 200 && !log.includes("orbidden")) return;
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      throw new Error(`not ready: ${log}`);
    },
    async [Symbol.asyncDispose](): Promise<void> {
      child.kill("SIGTERM");
      expect(await exited, log).toBe(0);
    },
  };
}
