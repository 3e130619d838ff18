import { spawn, spawnSync } from "node:child_process";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { rootDir } from "../../scripts/checkout.ts";
import { type Cluster, freePorts, openCluster } from "./cluster.ts";
import { programPath } from "./programs.ts";

let cluster: Cluster;

beforeAll(async () => {
  cluster = await openCluster({ controllerManager: false, scheduler: false });
}, 180_000);

afterAll(async () => {
  await cluster[Symbol.asyncDispose]();
});

function kubectl(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const options = { cwd: rootDir, encoding: "utf8", timeout: 60_000 } as const;
  return spawnSync(programPath("kubectl"), ["--kubeconfig", cluster.kubeconfig, ...args], options);
}

test("deploy: a real API server takes every manifest, without a warning", () => {
  const applied = kubectl("apply", "--server-side", "-k", "deploy/kubernetes");
  expect(applied).toMatchObject({ status: 0, stderr: "" });
  const rendered = kubectl("kustomize", "deploy/kubernetes").stdout;
  expect(applied.stdout.trim().split("\n")).toHaveLength(parseAllDocuments(rendered).length);
});

const roles = [
  { role: "controller", account: "agent-sandbox-controller" },
  { role: "router", account: "sandbox-router" },
] as const;

for (const { role, account } of roles) {
  test(`deploy: the ${role} becomes ready with the rights and arguments of its manifest`, async () => {
    const user = `system:serviceaccount:agent-sandbox-system:${account}`;
    const groups = ["system:serviceaccounts", "system:serviceaccounts:agent-sandbox-system", "system:authenticated"];
    const kubeconfig = await cluster.kubeconfigFor(user, groups);
    const template = "{.spec.template.spec.containers[0].args}";
    const args = kubectl("get", "deployment", account, "-n", "agent-sandbox-system", "-o", `jsonpath=${template}`);
    await using process = await startRole(JSON.parse(args.stdout) as string[], kubeconfig);
    await process.ready();
  });
}

/** Starts a role as its Pod would, on ports of this machine that are free; later flags win over earlier ones. */
async function startRole(args: readonly string[], kubeconfig: string) {
  const [health = 0, metrics = 0, serving = 0] = await freePorts(3);
  const serve =
    args[0] === "controller"
      ? [
          `--webhook-port=${serving}`,
          `--webhook-cert-dir=${cluster.dir}/webhook`,
          "--leader-election-namespace=default",
        ]
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
