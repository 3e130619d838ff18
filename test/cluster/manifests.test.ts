import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { rootDir } from "../../scripts/checkout.ts";
import { type Cluster, openCluster } from "./cluster.ts";
import { programPath } from "./programs.ts";
import { startRole } from "./role.ts";

let cluster: Cluster;

beforeAll(async () => {
  cluster = await openCluster({ controllerManager: false, scheduler: false });
}, 180_000);

afterAll(async () => {
  await cluster[Symbol.asyncDispose]();
});

function kubectl(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const options = { cwd: rootDir, encoding: "utf8", timeout: 60_000, maxBuffer: 64 << 20 } as const;
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
    await using process = await startRole(JSON.parse(args.stdout) as string[], { kubeconfig, dir: cluster.dir });
    await process.ready();
  });
}
