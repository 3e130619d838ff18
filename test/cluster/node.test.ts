import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type Node, nodes, type Pod, pods, type Sandbox, sandboxes, serviceAccounts } from "@agent-sandbox/api";
import { type Client, createClient, httpTransport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { TestNamespace } from "../node/namespace.ts";
import { logTail, startDaemon } from "./child.ts";
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
  await kubectl("apply", "--server-side", "-k", "deploy/kubernetes");
  await kubectl("apply", "--server-side", "-f", "deploy/node/rbac.yaml");
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

test("cluster node: a Sandbox becomes ready by our controllers and node, and exec reaches its daemon through the real API server", {
  timeout: 240_000,
}, async () => {
  const user = componentUser("agent-sandbox-controller");
  const groups = user.groups.filter((group) => group !== "system:authenticated");
  const kubeconfig = await cluster.innerKubeconfigFor(user.username, groups);
  const flags = ["--leader-elect=false", "--extensions", "--enable-webhook=false", "--metrics-bind-address=0"];
  const [file, args] = place.inside(...cli, "controller", `--kubeconfig=${kubeconfig}`, ...flags);
  const controller = startDaemon("controller", file, args, path.join(work, "controller.log"));
  try {
    const container = { name: "sandbox", image: "host", command: ["sleep", "infinity"] };
    const box: Sandbox = {
      apiVersion: "agents.x-k8s.io/v1beta1",
      kind: "Sandbox",
      metadata: { name: "box", namespace: "default" },
      spec: { podTemplate: { spec: { containers: [container] } } },
    };
    await client.create(sandboxes, box);
    const key = { namespace: "default", name: "box" };
    await objectWhere(
      () => client.get(sandboxes, key),
      ({ status }) => isReady(status?.conditions),
    );
    const admin = await cluster.innerKubeconfigFor("kubernetes-admin", ["system:masters"]);
    const command = ["exec", "box", "--", "sh", "-c", "uname -r; exit 3"];
    const ran = await runInside("env", `AGENT_SANDBOX_KUBECONFIG=${admin}`, ...cli, ...command);
    expect(ran, `${ran.stderr}${logTail(controller)}`).toMatchObject({
      code: 3,
      stdout: expect.stringContaining("-gvisor"),
    });
    await kubectl("delete", "sandbox", "box");
    // Kubernetes' garbage collector looks for new kinds every thirty seconds, and ours has just been installed.
    await expect
      .poll(() => kubectl("get", "pod", "box", "--ignore-not-found", "-o", "name"), { timeout: 90_000 })
      .toBe("");
  } finally {
    await controller.stop();
  }
});

/** Runs a program in the cluster's namespaces to its end, while this process goes on. */
async function runInside(...argv: readonly string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const [file, args] = place.inside(...argv);
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"], timeout: 90_000 });
  const [stdout, stderr, ended] = [text(child.stdout), text(child.stderr), once(child, "close")];
  return { code: ((await ended) as [number | null])[0], stdout: await stdout, stderr: await stderr };
}

test("cluster node: a deleted Pod leaves nothing on the node", async () => {
  await kubectl("delete", "pod", "guest", "--grace-period=1");
  expect(await kubectl("get", "pods", "-o", "name")).toBe("");
  await expect.poll(() => readdirSync(path.join(work, "node/engine/node/sandboxes")), { timeout: 30_000 }).toEqual([]);
});
