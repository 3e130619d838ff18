import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type Node, nodes, type Pod, pods, serviceAccounts } from "@agent-sandbox/api";
import { type Client, createClient, httpTransport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { TestNamespace } from "../node/namespace.ts";
import { type Cluster, openCluster } from "./cluster.ts";
import { programPath } from "./programs.ts";

const nodeName = "sandbox-node";
const execute = promisify(execFile);
const cli = [process.execPath, "--disable-warning=ExperimentalWarning", path.join(rootDir, "packages/cli/src/main.ts")];

let place: TestNamespace;
let cluster: Cluster;
let client: Client;
let work: string;
let agent: ChildProcess;

/** A Kubernetes of its own, the rights of deploy/node, and this machine joined to it as a node. */
beforeAll(async () => {
  work = mkdtempSync("/tmp/as-node-");
  await execute("chmod", ["711", work]);
  place = await TestNamespace.open();
  cluster = await openCluster({
    place,
    dialsKubelets: true,
    controllers: ["node-lifecycle-controller", "taint-eviction-controller"],
  });
  client = createClient(httpTransport(cluster.admin));
  const crds = ["sandboxes", "sandboxsnapshots"].flatMap((name) => ["-f", `spec/crds/${name}.yaml`]);
  await kubectl("apply", "--server-side", ...crds, "-f", "deploy/node/rbac.yaml");
  const user = `system:node:${nodeName}`;
  await kubectl("create", "clusterrolebinding", "node", "--clusterrole=agent-sandbox-node", `--user=${user}`);
  const reader = "--role=extension-apiserver-authentication-reader";
  await kubectl("create", "rolebinding", "node", "-n", "kube-system", reader, `--user=${user}`);
  await startNode(await cluster.innerKubeconfigFor(user, ["system:nodes"]));
}, 300_000);

afterAll(async () => {
  await client?.transport.close();
  const gone = once(agent, "exit");
  agent.kill("SIGTERM");
  await gone;
  place.must(...cli, "down", "--purge", "--data-dir", path.join(work, "node"));
  await cluster[Symbol.asyncDispose]();
  await place[Symbol.asyncDispose]();
  rmSync(work, { recursive: true, force: true });
}, 120_000);

async function startNode(kubeconfig: string): Promise<void> {
  const flags = [
    `--kubeconfig=${kubeconfig}`,
    `--hostname-override=${nodeName}`,
    "--node-ip=127.0.0.1",
    "--port=0",
    `--data-dir=${path.join(work, "node")}`,
    "--node-labels=tier=gvisor",
  ];
  const log = openSync(path.join(work, "node.log"), "w");
  const [file, args] = place.inside(...cli, "node", ...flags);
  agent = spawn(file, args, { stdio: ["ignore", log, log] });
  closeSync(log);
  await objectWhere(
    () => client.get(nodes, { name: nodeName }),
    ({ status, spec }: Node) =>
      (spec?.taints ?? []).length === 0 &&
      status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true,
  );
}

/** What an object is once it satisfies the condition; throws with the node's log when the node ends or time does. */
async function objectWhere<T>(read: () => Promise<T>, condition: (object: T) => boolean): Promise<T> {
  const signal = AbortSignal.timeout(120_000);
  let last: unknown;
  while (!signal.aborted && agent.exitCode === null) {
    try {
      const object = await read();
      last = object;
      if (condition(object)) return object;
    } catch (error) {
      last = error;
    }
    await sleep(100);
  }
  const logs = ["node.log", "node/logs/node.log"]
    .map((name) => path.join(work, name))
    .filter((file) => existsSync(file));
  const text = logs.map((file) => readFileSync(file, "utf8").slice(-2_000)).join("\n");
  throw new Error(`it did not get there: ${JSON.stringify(last)}\n${text}`);
}

async function kubectl(...args: readonly string[]): Promise<string> {
  const options = { cwd: rootDir, timeout: 60_000 };
  return (await execute(programPath("kubectl"), ["--kubeconfig", cluster.kubeconfig, ...args], options)).stdout;
}

const podWhere = (name: string, condition: (pod: Pod) => boolean): Promise<Pod> =>
  objectWhere(() => client.get(pods, { namespace: "default", name }), condition);

test("cluster node: a Pod that the real scheduler binds runs in gVisor, and kubectl reaches it through the real API server", async () => {
  // Its service account is made by a controller.
  await objectWhere(
    () => client.get(serviceAccounts, { namespace: "default", name: "default" }),
    () => true,
  );
  await kubectl(
    "run",
    "guest",
    "--image=host",
    "--restart=Never",
    "--command",
    "--",
    "sh",
    "-c",
    "echo begun; cat; exec sleep infinity",
  );
  const ready = await podWhere("guest", ({ status }) => isReady(status?.conditions));
  expect(ready.spec?.nodeName).toBe(nodeName);
  expect(ready.spec?.volumes?.[0]?.name).toContain("kube-api-access");
  expect(await kubectl("exec", "guest", "--", "uname", "-a")).toContain("-gvisor");
  expect(await kubectl("logs", "guest")).toBe("begun\n");
  const token = await kubectl("exec", "guest", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token");
  expect(token.split(".")).toHaveLength(3);
  const failed = await kubectl("exec", "guest", "--", "sh", "-c", "exit 7").catch(
    (error: { code: number }) => error.code,
  );
  expect(failed).toBe(7);
});

function isReady(conditions: readonly { readonly type: string; readonly status: string }[] | undefined): boolean {
  return conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
}

test("cluster node: the Node says what it is and keeps its Lease", async () => {
  const node = await client.get(nodes, { name: nodeName });
  expect(node.metadata.labels).toMatchObject({ tier: "gvisor", "kubernetes.io/os": "linux" });
  expect(node.status?.runtimeHandlers).toContainEqual({ name: "gvisor" });
  const lease = await kubectl(
    "get",
    "lease",
    "-n",
    "kube-node-lease",
    nodeName,
    "-o",
    "jsonpath={.spec.holderIdentity}",
  );
  expect(lease).toBe(nodeName);
});

test("cluster node: the kubelet endpoint asks the API server who calls and what they may do", async () => {
  const port = (await client.get(nodes, { name: nodeName })).status?.daemonEndpoints?.kubeletEndpoint?.Port ?? 0;
  const call = (token: string): string =>
    place.must(
      "curl",
      "-sk",
      "-o",
      "/dev/null",
      "-w",
      "%{http_code}",
      "-H",
      `Authorization: Bearer ${token}`,
      `https://127.0.0.1:${port}/pods`,
    );
  const tokenOf = async (name: string): Promise<string> => {
    await kubectl("create", "serviceaccount", name);
    return (await kubectl("create", "token", name)).trim();
  };
  const [stranger, reader] = [await tokenOf("stranger"), await tokenOf("reader")];
  await kubectl("create", "clusterrole", "pods-of-nodes", "--verb=get", "--resource=nodes/pods");
  const role = ["--clusterrole=pods-of-nodes", "--serviceaccount=default:reader"];
  await kubectl("create", "clusterrolebinding", "reader", ...role);
  expect([call("nonsense"), call(stranger)]).toEqual(["401", "403"]);
  // The API server learns of a binding by a watch, and a refusal is believed for ten seconds.
  await expect.poll(() => call(reader), { timeout: 30_000, interval: 500 }).toBe("200");
});

test("cluster node: a deleted Pod leaves nothing on the node", async () => {
  await kubectl("delete", "pod", "guest", "--grace-period=1");
  expect(await kubectl("get", "pods", "-o", "name")).toBe("");
  await expect.poll(() => readdirSync(path.join(work, "node/sandboxes")), { timeout: 30_000 }).toEqual([]);
});
