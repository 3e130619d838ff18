import { existsSync, readdirSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { type Condition, nodes, type Pod, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { roleProcess } from "../node/engine-processes.ts";
import { RealEngine, until } from "../node/real-engine.ts";

let engine: RealEngine;

const mebibyte = 2 ** 20;
const python = "/usr/bin/python3";
/** What all sandboxes together have; more than one of them, less than two. */
const together = 1400 * mebibyte;
const reserved = os.totalmem() - together;
const byDefault = 320 * mebibyte;
const pids = 250;

beforeAll(async () => {
  const flags = {
    "--system-reserved-memory": reserved,
    "--default-pod-memory": byDefault,
    "--default-pod-disk": "96Mi",
    "--pod-max-pids": pids,
  };
  engine = await RealEngine.open(...Object.entries(flags).flatMap(([flag, value]) => [flag, String(value)]));
});

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

/** A pod of one container with limits; what it requests is little, so that limits may add up to more than there is. */
function limited(limits: Readonly<Record<string, string>>): Partial<Pod> {
  const resources = { limits, requests: { memory: "20Mi", cpu: "10m" } };
  return { spec: { containers: [{ name: "main", resources }] } };
}

/** Sandboxes that wait for a pod. */
async function oneWaits(): Promise<void> {
  const dir = path.join(engine.hostDir, "containers");
  const isReady = (id: string): boolean => {
    const files = readdirSync(path.join(dir, id));
    return (
      files.includes("waiting.name") &&
      readFileSync(path.join(dir, id, "record.json"), "utf8").includes('"running":true')
    );
  };
  await until(() => readdirSync(dir).some((id) => id.startsWith("ahead-") && isReady(id)));
  await new Promise((resolve) => setTimeout(resolve, 100));
}

/** What a pod's programs believe of their machine. */
async function seenBy(pod: string): Promise<Record<string, number>> {
  const script = [
    "import os,subprocess",
    "mem={l.split(':')[0]:int(l.split()[1])*1024 for l in open('/proc/meminfo')}",
    "root=os.statvfs('/')",
    "free=subprocess.run(['free','-b'],capture_output=True,text=True).stdout.split('\\n')[1].split()[1] if os.path.exists('/usr/bin/free') else mem['MemTotal']",
    "print(mem['MemTotal'],mem['MemAvailable'],free,os.sysconf('SC_PHYS_PAGES')*os.sysconf('SC_PAGE_SIZE'),subprocess.run(['nproc'],capture_output=True,text=True).stdout.strip(),os.cpu_count(),root.f_blocks*root.f_frsize)",
  ].join("\n");
  const { stdout, stderr } = await engine.run(pod, [python, "-c", script]);
  const numbers = stdout.trim().split(" ").map(Number);
  if (numbers.length !== 7) throw new Error(`${stdout}${stderr}`);
  const [total = 0, available = 0, free = 0, pages = 0, nproc = 0, cpus = 0, root = 0] = numbers;
  return { total, available, free, pages, nproc, cpus, root };
}

test("limits of the machine: all sandboxes together have what is not reserved, and the node offers no more", async () => {
  const [bound] = ["memory/NAME/memory.limit_in_bytes", "NAME/memory.max"]
    .map((file) => path.join("/sys/fs/cgroup", file.replace("NAME", `agent-sandbox-${engine.instance}`)))
    .filter((file) => existsSync(file));
  expect(Number(readFileSync(bound ?? "", "utf8"))).toBe(together);
  const [node] = (await engine.client.list(nodes)).items;
  expect(node?.status?.allocatable?.["memory"]).toBe(String(together));
});

test("limits inside: a sandbox made ahead shows its pod's memory, processors and disk", async () => {
  await oneWaits();
  await engine.startPod("ahead", limited({ memory: "200Mi", cpu: "1" }));
  await engine.readyPod("ahead");
  const seen = await seenBy("ahead");
  expect(seen).toMatchObject({ total: 200 * mebibyte, free: 200 * mebibyte, pages: 200 * mebibyte });
  expect(seen["available"]).toBeLessThan(200 * mebibyte);
  expect(seen).toMatchObject({ nproc: 2, cpus: 2 });
  expect(seen["root"]).toBeLessThanOrEqual(96 * mebibyte);
});

test("limits inside: a sandbox of its own shows the same", async () => {
  // An init container makes a pod have a sandbox of its own.
  const first = { name: "first", image: "host", command: ["true"] };
  const { containers = [] } = limited({ memory: "300Mi", cpu: "500m" }).spec ?? {};
  await engine.startPod("own", { spec: { initContainers: [first], containers } });
  await engine.readyPod("own");
  const seen = await seenBy("own");
  expect(seen).toMatchObject({ total: 300 * mebibyte, free: 300 * mebibyte, pages: 300 * mebibyte, nproc: 2, cpus: 2 });
});

test("limits inside: a pod that names none has the default", async () => {
  await engine.startPod("plain");
  await engine.readyPod("plain");
  expect(await seenBy("plain")).toMatchObject({ total: byDefault, nproc: os.cpus().length });
});

/** A Sandbox of one container with limits. */
async function startSandbox(name: string, limits: Readonly<Record<string, string>>): Promise<void> {
  const resources = { limits, requests: { memory: "20Mi" } };
  const main = { name: "main", image: "host", command: ["sleep", "infinity"], resources };
  await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace: "default" },
    spec: { podTemplate: { spec: { terminationGracePeriodSeconds: 1, containers: [main] } } },
  });
  await conditionOf(name, "Ready", "True");
}

/** Resolves with a condition of a Sandbox once it has it with that status. */
async function conditionOf(name: string, type: string, status: string): Promise<Condition> {
  const find = ({ status: own }: Sandbox): Condition | undefined =>
    own?.conditions?.find((condition) => condition.type === type && condition.status === status);
  const found = await engine.objectWhere(sandboxes, { namespace: "default", name }, (one) => find(one) !== undefined);
  return find(found) as Condition;
}

/** Resolves once there is such an Event: they are written behind what they tell of. */
async function eventOf(line: RegExp): Promise<void> {
  await until(async () => line.test(await engine.kubectl("get", "events")), 10_000);
}

/** The argv of a program that takes memory. */
function take(size: number, holdSeconds = 0): string[] {
  const script = `import time; b=bytearray(${size * mebibyte}); b[::4096]=b'x'*len(b[::4096]); print(len(b), flush=True); time.sleep(${holdSeconds})`;
  return [python, "-c", script];
}

/** The processes of the engine, by role. */
function engineProcesses(): string[] {
  const roles = ["supervisor", "control", "router", "node", "sandbox-host"] as const;
  return roles.map((role) => `${role} ${roleProcess(engine, role)}`);
}

test("limits reached: a memory hog is killed alone, and the command, the container, the Sandbox and events say why", async () => {
  await Promise.all([startSandbox("hog", { memory: "150Mi" }), startSandbox("neighbour", { memory: "150Mi" })]);
  const before = engineProcesses();
  const { exitCode, stderr } = await engine.run("hog", take(400), { timeoutMs: 30_000 });
  expect({ exitCode, stderr }).toMatchObject({
    exitCode: 137,
    stderr: expect.stringContaining("reached its memory limit of 150Mi (OOMKilled)") as string,
  });
  const message = "container main: the sandbox was killed: it reached its memory limit of 150Mi";
  expect(await conditionOf("hog", "OOMKilled", "True")).toMatchObject({ reason: "MemoryLimit", message });
  const described = await engine.kubectl("describe", "sandbox", "hog");
  expect(described).toContain(message);
  await eventOf(/OOMKilled .*sandbox\/hog/);
  const pod = await engine.readyPod("hog");
  expect(pod.status?.containerStatuses?.[0]?.lastState?.terminated).toMatchObject({
    reason: "OOMKilled",
    exitCode: 137,
  });
  expect((await engine.sh("neighbour", "echo alive")).stdout).toBe("alive\n");
  expect(engineProcesses()).toEqual(before);
  const neighbour = await engine.client.get(sandboxes, { namespace: "default", name: "neighbour" });
  expect(neighbour.status?.conditions?.map(({ type }) => type).toSorted()).toEqual([
    "PodScheduled",
    "Ready",
    "Suspended",
  ]);
});

test("limits reached: a caller through the router is told too, at once", async () => {
  await startSandbox("called", { memory: "150Mi" });
  const words = ["exec", "called", "--", ...take(400)];
  const why =
    "the command was killed: OOMKilled: container main: the sandbox was killed: it reached its memory limit of 150Mi";
  const startMs = performance.now();
  expect(() => engine.cli(...(words as [string]))).toThrow(why);
  // Keep-alive alone would take more than five seconds.
  expect(performance.now() - startMs).toBeLessThan(5_000);
});

test("limits reached: two that are within their limits cannot take more than all have together", async () => {
  await Promise.all([
    engine.startPod("wide-a", limited({ memory: "1200Mi" })),
    engine.startPod("wide-b", limited({ memory: "1200Mi" })),
  ]);
  await Promise.all(["wide-a", "wide-b"].map((name) => engine.readyPod(name)));
  const before = engineProcesses();
  const ends = await Promise.all(
    ["wide-a", "wide-b"].map((name) => engine.run(name, take(850, 3), { timeoutMs: 60_000 })),
  );
  const killed = ends.filter(({ exitCode }) => exitCode === 137);
  expect(killed.length).toBeGreaterThan(0);
  expect(killed[0]?.stderr).toContain("all sandboxes of the node together reached the 1400Mi");
  expect(engineProcesses()).toEqual(before);
  expect((await engine.sh("neighbour", "echo alive")).stdout).toBe("alive\n");
  await Promise.all(["wide-a", "wide-b"].map((name) => engine.removePod(name)));
});

test("limits reached: a fork bomb ends its own sandbox, which says so", async () => {
  await startSandbox("bomb", { memory: "1Gi" });
  const bomb = "import os,time\nfor i in range(2000):\n  if os.fork() == 0:\n    time.sleep(20); os._exit(0)";
  const { exitCode, stderr } = await engine.run("bomb", [python, "-c", bomb], { timeoutMs: 40_000 });
  expect({ exitCode, stderr }).toMatchObject({
    exitCode: 137,
    stderr: expect.stringContaining(`its limit of ${pids} processes and threads`) as string,
  });
  expect(await conditionOf("bomb", "PidLimitReached", "True")).toMatchObject({ reason: "PidLimit" });
  expect((await engine.sh("neighbour", "echo alive")).stdout).toBe("alive\n");
});

test("limits reached: a full disk is an error inside, a condition outside, and both go when there is room again", async () => {
  await startSandbox("filler", { memory: "150Mi", "ephemeral-storage": "64Mi" });
  const { stdout } = await engine.sh("filler", "dd if=/dev/zero of=/big bs=1M count=200 2>&1");
  expect(stdout).toContain("No space left on device");
  const full = await conditionOf("filler", "DiskFull", "True");
  expect(full).toMatchObject({
    reason: "StorageLimit",
    message: "no space is left on the writable layer of container main (58Mi)",
  });
  await eventOf(/DiskFull .*pod\/filler/);
  await engine.sh("filler", "rm /big");
  expect(await conditionOf("filler", "DiskFull", "False")).toMatchObject({ reason: "SpaceFree" });
});
