import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import {
  type Container,
  namespaces,
  nodes,
  type Pod,
  type PodSpec,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  type Sandbox,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Report } from "../../packages/cli/src/verify/report.ts";
import { type ComponentName, componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import { sandboxdPort, sandboxdTarget } from "../../packages/server/src/node/pods/sandboxd-launch.ts";
import { readSetup, rootDir } from "../../scripts/checkout.ts";
import { runPrintedPython } from "../articles/printed-python.ts";
import { pythonImage } from "../articles/python-image.ts";
import { type Daemon, logTail, startDaemon } from "./child.ts";
import { aClaim, aPool, aTemplate } from "./claim-objects.ts";
import { freePorts } from "./cluster.ts";
import { aSandbox } from "./control-scenarios.ts";
import { RealNode } from "./real-node.ts";
import { gvisorClass, realImages } from "./real-node-settings.ts";
import { Ground } from "./scenario-ground.ts";

let node: RealNode;
let controller: Daemon;

beforeAll(async () => {
  node = await RealNode.open();
  await node.kubectl("apply", "--server-side", "-k", "deploy/kubernetes");
  controller = await startController();
}, 300_000);

afterAll(async () => {
  await controller?.stop();
  await node?.[Symbol.asyncDispose]();
}, 120_000);

const cli = [process.execPath, "--disable-warning=ExperimentalWarning", path.join(rootDir, "packages/cli/src/main.ts")];

/** Who a component is on a cluster: its ServiceAccount. */
function accountOf(name: ComponentName): [string, string[]] {
  const { username, groups } = componentUser(name);
  return [username, groups.filter((group) => group !== "system:authenticated")];
}

/** Our controllers, with the rights of their ServiceAccount. */
async function startController(): Promise<Daemon> {
  const kubeconfig = await node.cluster.kubeconfigFor(...accountOf("agent-sandbox-controller"));
  const flags = ["--leader-elect=false", "--extensions", "--enable-webhook=false", "--metrics-bind-address=0"];
  const [file = "", ...args] = [...cli, "controller", `--kubeconfig=${kubeconfig}`, ...flags];
  return startDaemon("controller", file, args, path.join(node.dir, "controller.log"));
}

/** Prints one line, then waits; ends at once on SIGTERM, where a shell that only waits would take the whole grace period. */
const shell: Container = {
  name: "main",
  image: realImages.shell,
  command: ["sh", "-c", "echo begun; trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done"],
};

function podSpec(runtimeClassName?: string): PodSpec {
  return { containers: [shell], ...(runtimeClassName !== undefined && { runtimeClassName }) };
}

const isReady = ({ status }: { status?: { conditions?: readonly { type: string; status: string }[] } }): boolean =>
  status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;

/** Runs one test's steps in a namespace of its own; a failure tells what the node's programs said. */
async function inNamespace(steps: (ground: Ground) => Promise<void>): Promise<void> {
  await using ground = await Ground.open(node.client);
  try {
    await steps(ground);
  } catch (error) {
    throw new Error(`${String(error)}\n${node.logs()}\ncontroller:\n${logTail(controller)}`, { cause: error });
  }
}

async function runningPod(ground: Ground, name: string, runtimeClassName?: string): Promise<Pod> {
  await ground.create(pods, { apiVersion: "v1", kind: "Pod", metadata: { name }, spec: podSpec(runtimeClassName) });
  return ground.until(pods, name, isReady);
}

const exec = (ground: Ground, pod: string, ...command: string[]): Promise<string> =>
  node.kubectl("exec", "-n", ground.namespace, pod, "--", ...command);

/** What Pods leave goes when their objects do, a moment later. */
async function expectNothingHeld(): Promise<void> {
  const nothing = { tasks: [], processes: [], cgroups: [], links: [], networks: [], mounts: [], addresses: [] };
  await expect.poll(() => node.holdings(), { timeout: 60_000, interval: 250 }).toEqual(nothing);
}

test("real node: a plain Pod runs on the machine's kernel with runc, and kubectl reads its log and runs commands in it", async () => {
  await inNamespace(async (ground) => {
    const pod = await runningPod(ground, "plain");
    expect(pod.spec?.nodeName).toBe(RealNode.nodeName);
    expect(await exec(ground, "plain", "uname", "-r")).toBe(`${os.release()}\n`);
    expect(await node.kubectl("logs", "-n", ground.namespace, "plain")).toBe("begun\n");
    const failed = await exec(ground, "plain", "sh", "-c", "exit 7").catch((error: { code: number }) => error.code);
    expect(failed).toBe(7);
    const held = await node.holdings();
    expect(held.tasks).toHaveLength(2);
    expect(held.links).toHaveLength(1);
  });
  await expectNothingHeld();
});

test("real node: a Pod of the RuntimeClass gvisor runs in gVisor", async () => {
  await inNamespace(async (ground) => {
    const pod = await runningPod(ground, "walled", gvisorClass);
    expect(await exec(ground, "walled", "dmesg")).toContain("Starting gVisor");
    expect(await exec(ground, "walled", "uname", "-r")).not.toBe(`${os.release()}\n`);
    expect(await exec(ground, "walled", "hostname")).toBe(`${pod.metadata.name}\n`);
    expect(await node.kubectl("logs", "-n", ground.namespace, "walled")).toBe("begun\n");
    const { status } = await node.client.get(nodes, { name: RealNode.nodeName });
    expect(status?.nodeInfo?.containerRuntimeVersion).toMatch(/^containerd:\/\/v?2\./);
  });
  await expectNothingHeld();
});

test("real node: a Sandbox runs in gVisor under the kubelet, sleeps, wakes with its volume and goes without a trace", async () => {
  await inNamespace(async (ground) => {
    await using _volume = await makeVolume();
    await ground.create(sandboxes, boxWithVolume());
    const ready = await ground.until(sandboxes, "box", isReady);
    const { metadata, status } = await ground.get(pods, "box");
    expect(ready.status?.podIPs).toEqual(status?.podIPs?.map(({ ip }) => ip));
    const script = "echo kept > /home/note; dmesg; exit 3";
    const said = await runCli("exec", "-n", ground.namespace, "box", "--", "sh", "-c", script);
    expect(said, said.stderr).toMatchObject({ code: 3, stdout: expect.stringContaining("Starting gVisor") });
    expect(await runCli("logs", "-n", ground.namespace, "box")).toMatchObject({ code: 0, stdout: "begun\n" });

    await ground.patch(sandboxes, "box", { spec: { operatingMode: "Suspended" } });
    await ground.until(sandboxes, "box", isSuspended);
    await ground.untilGone(pods, "box");
    await expectNothingHeld();

    await ground.patch(sandboxes, "box", { spec: { operatingMode: "Running" } });
    await ground.until(sandboxes, "box", isReady);
    expect((await ground.get(pods, "box")).metadata.uid).not.toBe(metadata.uid);
    expect(await exec(ground, "box", "cat", "/home/note")).toBe("kept\n");

    await ground.remove(sandboxes, "box");
    await ground.untilGone(pods, "box");
    await ground.untilList(persistentVolumeClaims, (all) => all.length === 0);
    await expectNothingHeld();
  });
});

function boxWithVolume(): Sandbox {
  const containers = [{ ...shell, volumeMounts: [{ name: "home", mountPath: "/home" }] }];
  const claim = {
    metadata: { name: "home" },
    spec: {
      accessModes: ["ReadWriteOnce" as const],
      resources: { requests: { storage: "1Mi" } },
      storageClassName: "",
    },
  };
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "box" },
    spec: { podTemplate: { spec: { ...podSpec(gvisorClass), containers } }, volumeClaimTemplates: [claim] },
  };
}

/** A directory of the node for the one claim that asks for one. */
async function makeVolume(): Promise<AsyncDisposable> {
  const directory = path.join(node.dir, "volume");
  mkdirSync(directory);
  await node.client.create(persistentVolumes, {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name: "volume" },
    spec: { capacity: { storage: "1Mi" }, accessModes: ["ReadWriteOnce"], hostPath: { path: directory } },
  });
  return { [Symbol.asyncDispose]: () => node.client.delete(persistentVolumes, { name: "volume" }) };
}

const isSuspended = ({ status }: Sandbox): boolean =>
  status?.conditions?.some(({ type, status: is }) => type === "Suspended" && is === "True") === true;

test("real node: a claim gets a warm Sandbox whose Pod goes on running, and the pool refills", async () => {
  await inNamespace(async (ground) => {
    await ground.create(sandboxTemplates, aTemplate("tpl", { podTemplate: { spec: podSpec(gvisorClass) } }));
    await ground.create(sandboxWarmPools, aPool("pool", "tpl", 1));
    await ground.until(sandboxWarmPools, "pool", ({ status }) => status?.readyReplicas === 1);
    const [warm] = await ground.list(pods);
    await ground.create(sandboxClaims, aClaim("claim", "pool"));
    const claim = await ground.until(sandboxClaims, "claim", isReady);
    const name = claim.status?.sandbox?.name ?? "";
    const claimed = await ground.get(pods, warm?.metadata.name ?? "");
    expect([claimed.metadata.uid, claimed.metadata.name]).toEqual([warm?.metadata.uid, name]);
    expect(claimed.status?.containerStatuses?.[0]?.restartCount).toBe(0);
    expect(await exec(ground, name, "dmesg")).toContain("Starting gVisor");
    await ground.until(sandboxWarmPools, "pool", ({ status }) => status?.readyReplicas === 1);
    await ground.remove(sandboxWarmPools, "pool");
    await ground.remove(sandboxClaims, "claim");
    await ground.untilList(pods, (all) => all.length === 0);
  });
  await expectNothingHeld();
});

/** Our router among the node's Pods, as its manifest starts it; returns where it answers out here. Its process ends with the node's namespaces. */
function routerUrl(): Promise<string> {
  router ??= startRouter();
  return router;
}
let router: Promise<string> | undefined;

async function startRouter(): Promise<string> {
  const [port = 0] = await freePorts(1);
  const kubeconfig = await node.cluster.innerKubeconfigFor(...accountOf("sandbox-router"));
  const flags = ["--authz-mode=access-review", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
  const own = [`--kubeconfig=${kubeconfig}`, `--http-bind-address=127.0.0.1:${port}`];
  const [file, args] = node.place.inside(...cli, "router", ...own, ...flags);
  const log = path.join(node.dir, "router.log");
  startDaemon("router", file, args, log);
  await expect.poll(() => readFileSync(log, "utf8"), { timeout: 60_000 }).toContain('"msg":"ready"');
  return `http://127.0.0.1:${await node.place.openDoor(port, path.join(node.dir, "router.sock"))}`;
}

/** The token of an account that has one role in the namespace. */
async function tokenOf({ namespace }: Ground, role: string): Promise<string> {
  await node.kubectl("create", "serviceaccount", "caller", "-n", namespace);
  const rights = [`--clusterrole=${role}`, `--serviceaccount=${namespace}:caller`];
  await node.kubectl("create", "rolebinding", "caller", "-n", namespace, ...rights);
  return (await node.kubectl("create", "token", "caller", "-n", namespace)).trim();
}

test("real node: a request through the router reaches a Sandbox, and wakes it where it sleeps", async () => {
  await inNamespace(async (ground) => {
    const url = await routerUrl();
    const token = await tokenOf(ground, "sandbox-user");
    const headers = { "x-sandbox-id": "web", "x-sandbox-namespace": ground.namespace, "x-sandbox-port": "8080" };
    const ask = async (bearer: string): Promise<string> => {
      const answer = await fetch(url, { headers: { ...headers, authorization: `Bearer ${bearer}` } });
      return `${answer.status} ${(await answer.text()).trim()}`;
    };
    const server = { ...shell, command: ["sh", "-c", "hostname > /index.html; exec httpd -f -p 8080 -h /"] };
    const readinessProbe = { tcpSocket: { port: 8080 }, periodSeconds: 1 };
    const spec = {
      ...podSpec(gvisorClass),
      terminationGracePeriodSeconds: 1,
      containers: [{ ...server, readinessProbe }],
    };
    const box = aSandbox("web", { podTemplate: { spec }, wakePolicy: "OnTraffic" });
    await ground.create(sandboxes, box);
    await ground.until(sandboxes, "web", isReady);
    // The router learns of the Sandbox and of the caller's right by watches.
    await expect.poll(() => ask(token), { timeout: 30_000 }).toBe("200 web");
    expect(await ask("nonsense")).toMatch(/^401 /);

    await ground.patch(sandboxes, "web", { spec: { operatingMode: "Suspended" } });
    await ground.until(sandboxes, "web", isSuspended);
    await ground.untilGone(pods, "web");
    expect(await ask(token)).toBe("200 web");
    expect(await ground.get(sandboxes, "web")).toSatisfy(isReady);
  });
  await expectNothingHeld();
});

/**
 * What the administrator of a cluster gives every Pod of a namespace whose kubelet, unlike a node of ours, does not: the class gvisor, sandboxd in
 * front of the command, and a probe that tells when it serves.
 */
function podDefaults(namespace: string): object[] {
  const name = `defaults-of-${namespace}`;
  const kind = (kindName: string, spec: object): object => ({
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: kindName,
    metadata: { name },
    spec,
  });
  const patch = (op: string, field: string, value: string): string =>
    `JSONPatch{op: "${op}", path: "/spec/${field}", value: ${value}}`;
  const type = "Object.spec.containers.readinessProbe";
  const patches = [
    patch("add", "runtimeClassName", `"${gvisorClass}"`),
    patch("replace", "containers/0/command", `["${sandboxdTarget}", "init", "--"] + object.spec.containers[0].command`),
    patch(
      "add",
      "containers/0/readinessProbe",
      `${type}{periodSeconds: 1, tcpSocket: ${type}.tcpSocket{port: ${sandboxdPort}}}`,
    ),
  ];
  const mutation = { patchType: "JSONPatch", jsonPatch: { expression: `[${patches.join(", ")}]` } };
  const rule = { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"] };
  const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": namespace } };
  return [
    kind("MutatingAdmissionPolicy", {
      reinvocationPolicy: "Never",
      failurePolicy: "Fail",
      matchConstraints: { namespaceSelector, resourceRules: [rule] },
      mutations: [mutation],
    }),
    kind("MutatingAdmissionPolicyBinding", { policyName: name }),
  ];
}

/** A kubeconfig with a token alone, for a namespace. */
async function kubeconfigOf({ namespace }: Ground, token: string): Promise<string> {
  const file = path.join(node.dir, `${namespace}.kubeconfig`);
  writeFileSync(file, readFileSync(node.cluster.kubeconfig), { mode: 0o600 });
  const config = (...args: readonly string[]): Promise<string> =>
    node.kubectl("config", `--kubeconfig=${file}`, ...args);
  await config("set-credentials", "caller", `--token=${token}`);
  await config("set-context", "--current", "--user=caller", `--namespace=${namespace}`);
  return file;
}

test("real node: the printed Python of the articles, installed by pip, says Hello from a kubelet's Pod by our controller and router", async () => {
  await node.importImage(await pythonImage(readSetup().sandboxd));
  await inNamespace(async (ground) => {
    const policy = path.join(node.dir, "policy.json");
    writeFileSync(policy, JSON.stringify({ apiVersion: "v1", kind: "List", items: podDefaults(ground.namespace) }));
    await node.kubectl("apply", "-f", policy);
    const kubeconfig = await kubeconfigOf(ground, await tokenOf(ground, "admin"));
    const env = { ...process.env, AGENT_SANDBOX_KUBECONFIG: kubeconfig, AGENT_SANDBOX_ROUTER_URL: await routerUrl() };
    const bound = ground.until(pods, "my-sandbox", ({ spec }) => spec?.nodeName === RealNode.nodeName);
    const [said, pod] = await Promise.all([runPrintedPython(node.dir, env), bound]);
    expect(pod.spec?.runtimeClassName).toBe(gvisorClass);
    expect(said, said.stderr).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("Hello") });
    expect(await ground.list(sandboxes)).toEqual([]);
    await node.kubectl("delete", "-f", policy);
  });
  await expectNothingHeld();
});

/** Under a policy of Kubernetes that refuses Pods which give away the node. */
const baseline = { metadata: { labels: { "pod-security.kubernetes.io/enforce": "baseline" } } };

/** What this cluster cannot show: it has no root here, plays no hosts, and its API tells neither the version of runsc nor the nodes' default runtime. */
const untold = [
  "runtime/advisories",
  "escape/host-files",
  "escape/mounts",
  "escape/devices",
  "escape/namespaces",
  "escape/shared-memory",
  "egress/deny-all",
  "egress/metadata",
  "egress/private",
  "egress/ipv6",
  "egress/forged-sender",
  "host/services",
  "admission/runc",
];

/** What it does not hold: nothing on it enforces NetworkPolicies, and a kubelet evicts a Pod that has written too much some time after. */
const unenforced = ["host/engine", "neighbours/address", "limits/disk"];

/** The limits of a sandbox's own. One that shows in a neighbour's delay depends on what else this machine does. */
const limits = ["limits/disk", "limits/processes", "limits/memory"];

async function verify(ground: Ground, ...flags: readonly string[]): Promise<{ report: Report; code: number | null }> {
  const { code, stdout, stderr } = await runCli("verify", "-n", ground.namespace, "-o", "json", ...flags);
  expect(stdout, stderr).not.toBe("");
  return { code, report: JSON.parse(stdout) as Report };
}

test("real node: verify finds gVisor's walls whole, names what the cluster does not enforce, and passes nothing it cannot judge", {
  timeout: 240_000,
}, async () => {
  await inNamespace(async (ground) => {
    await node.client.patch(namespaces, { name: ground.namespace }, { type: "merge", body: baseline });
    // containerd gives MKNOD to every container, and verify counts it among what opens a way out.
    const walled = { ...shell, securityContext: { capabilities: { drop: ["MKNOD"] } } };
    const podTemplate = { spec: { ...podSpec(gvisorClass), containers: [walled] } };
    await ground.create(sandboxTemplates, aTemplate("judged", { podTemplate }));
    const { code, report } = await verify(ground, "--template", "judged", "--image", realImages.shell);
    const judged = report.findings.filter(({ id }) => !id.startsWith("limits/") || limits.includes(id));
    const found = Object.groupBy(judged, ({ result }) => result);
    expect(found["not-applicable"]?.map(({ id }) => id)).toEqual(untold);
    expect(found.broken?.map(({ id }) => id)).toEqual(unenforced);
    expect(found.held?.length).toBeGreaterThan(20);
    const unproven = judged.filter(({ control }) => control === "failed");
    expect([unproven, report.sound, code]).toEqual([[], false, 9]);
    expect(report.versions.runtimes["containerd"]).toMatch(/^v?2\./);
    expect((await ground.list(pods)).filter(({ metadata }) => metadata.deletionTimestamp === undefined)).toEqual([]);
  });
  await expectNothingHeld();
});

/** `AGENT_SANDBOX_TEST_FULL=1` also shows that the same run finds the holes where there is no gVisor. */
const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";

test.each(isFull ? ["runc"] : [])(
  "real node: verify finds the machine's kernel under a Pod of %s",
  { timeout: 240_000 },
  async () => {
    await inNamespace(async (ground) => {
      const { code, report } = await verify(ground, "--image", realImages.shell);
      const broken = report.findings.filter(({ result }) => result === "broken").map(({ id }) => id);
      expect(broken).toContain("kernel/own");
      expect(broken).toContain("admission/privileged");
      expect(code).toBe(9);
    });
    await expectNothingHeld();
  },
);

test("real node: the kubelet forgets the containers of deleted Pods", async () => {
  await expect.poll(() => node.containers(), { timeout: 100_000, interval: 1_000 }).toEqual([]);
});

/** Runs our command as a user of the cluster would, from outside it. */
async function runCli(...args: readonly string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const home = path.join(node.dir, "home");
  mkdirSync(home, { recursive: true });
  const env = { ...process.env, HOME: home, AGENT_SANDBOX_KUBECONFIG: node.cluster.kubeconfig };
  const [file = "", ...argv] = [...cli, ...args];
  const child = spawn(file, argv, { env, stdio: ["ignore", "pipe", "pipe"], timeout: 180_000 });
  const [stdout, stderr, ended] = [text(child.stdout), text(child.stderr), once(child, "close")];
  return { code: ((await ended) as [number | null])[0], stdout: await stdout, stderr: await stderr };
}
