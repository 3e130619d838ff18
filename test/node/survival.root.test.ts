import { readdirSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { nodes, type Pod, pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type EngineRole, killAll, killRole } from "./engine-processes.ts";
import { processTable } from "./footprint.ts";
import { isReady, RealEngine, until } from "./real-engine.ts";

let engine: RealEngine;

/** Sandboxes that count while engine processes die; `AGENT_SANDBOX_TEST_FULL=1` runs twenty. */
const count = process.env["AGENT_SANDBOX_TEST_FULL"] === "1" ? 20 : 4;
const names = Array.from({ length: count }, (_, index) => `counter-${index}`);

const counting = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done";

beforeAll(async () => {
  engine = await RealEngine.open();
  await Promise.all(names.map((name) => engine.startPod(name, { command: ["sh", "-c", counting] })));
  for (const name of names) await engine.readyPod(name);
}, 180_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

async function countersOf(name: string): Promise<number[]> {
  let text = "";
  // A node that has just come back answers as soon as the API server knows its port.
  await until(async () => {
    const { status, stdout } = await engine.kubectlWith("", "logs", name);
    text = stdout;
    return status === 0;
  });
  return text.trim().split("\n").map(Number);
}

/** Which runs there are: a restarted one has another container id or a count. */
async function runs(): Promise<string[]> {
  const { items } = await engine.client.list(pods, { namespace: "default" });
  return items
    .filter(({ metadata }) => names.includes(metadata.name))
    .map(({ metadata, status }: Pod) => {
      const [container] = status?.containerStatuses ?? [];
      return `${metadata.name} ${container?.containerID} ${container?.restartCount} ${status?.podIP}`;
    })
    .sort();
}

async function expectUnbroken(before: readonly string[]): Promise<void> {
  await until(async () => (await engine.client.list(pods, { namespace: "default" })).items.every(isReady));
  expect(await runs()).toEqual(before);
  for (const name of names) {
    const first = await countersOf(name);
    expect(first).toEqual(first.map((_, index) => index + 1));
    await until(async () => (await countersOf(name)).length > first.length);
  }
}

async function kubeletPort(): Promise<number | undefined> {
  const { items } = await engine.client.list(nodes);
  return items[0]?.status?.daemonEndpoints?.kubeletEndpoint?.Port;
}

const roles: readonly EngineRole[] = ["router", "node", "sandbox-host", "control", "supervisor"];

test.each(roles)(
  "invariant found-again-after-kill: kill -9 of %s restarts no sandbox and loses no output",
  async (role) => {
    const [before, port] = [await runs(), await kubeletPort()];
    await killRole(engine, role);
    await expectUnbroken(before);
    // The kernel chose it; a role that its supervisor starts again keeps it.
    if (role !== "supervisor") expect(await kubeletPort()).toBe(port);
    const { stdout } = await engine.sh(names[0] ?? "", "echo still here");
    expect(stdout).toBe("still here\n");
  },
);

test("survival: the agent dies at any moment of a start and the pod comes up once, all the same", async () => {
  for (const afterMs of [0, 40, 90, 150, 250, 400]) {
    const name = `late-${afterMs}`;
    await engine.startPod(name, { command: ["sh", "-c", "echo started; sleep infinity"] });
    await sleep(afterMs);
    await killRole(engine, "node");
    await engine.readyPod(name);
    await until(async () => (await engine.kubectlWith("", "logs", name)).stdout === "started\n");
    expect((await engine.podWhere(name, () => true)).status?.containerStatuses?.[0]?.restartCount).toBe(0);
    await engine.removePod(name);
  }
}, 180_000);

test("survival: an end that nobody saw is reported with its code, and its output is there", async () => {
  await engine.startPod("brief", {
    command: ["sh", "-c", "sleep 2; echo last words; exit 9"],
    spec: { containers: [], restartPolicy: "Never" },
  });
  await engine.readyPod("brief");
  await killAll(engine);
  await sleep(3_000);
  engine.up();
  await engine.connect();
  const done = await engine.podWhere("brief", ({ status }) => status?.phase === "Failed");
  expect(done.status?.containerStatuses?.[0]?.state?.terminated).toMatchObject({ exitCode: 9, reason: "Error" });
  expect(await engine.kubectl("logs", "brief")).toBe("last words\n");
  await engine.removePod("brief");
});

test("survival: after a reboot every sandbox comes up again, and nothing is left over", async () => {
  await rebootMachine();
  engine.up();
  await engine.connect();
  await until(async () => {
    const { items } = await engine.client.list(pods, { namespace: "default" });
    return items.every((pod) => isReady(pod) && pod.status?.containerStatuses?.[0]?.restartCount === 1);
  });
  for (const name of names) expect((await countersOf(name))[0]).toBe(1);
});

/** What a power cut leaves: the disk. Processes, mounts, links, rules, cgroups and /run are gone. */
async function rebootMachine(): Promise<void> {
  await killAll(engine);
  for (const { pid, command } of processTable())
    if (command.startsWith("runsc") && command.includes(engine.dataDir)) killQuietly(pid);
  const script = `
for i in 1 2 3; do awk '{print $2}' /proc/mounts | grep -E '${engine.dataDir}|agent-sandbox/${engine.instance}' | tac | xargs -r -n1 umount -l 2>/dev/null; done
rm -rf /run/agent-sandbox
ip -o link | grep -o 'as${engine.instance}[a-z0-9]*' | sort -u | xargs -r -n1 ip link del 2>/dev/null
nft delete table inet as_${engine.instance}
for d in $(find /sys/fs/cgroup -depth -type d -path '*agent-sandbox-${engine.instance}*'); do rmdir $d; done
true`;
  // A killed process keeps its cgroup for a moment.
  for (let tries = 0; tries < 20 && hasCgroup(); tries++)
    engine.place.must("sh", "-c", `sleep 0.2; ${script} 2>/dev/null`);
}

function hasCgroup(): boolean {
  return readdirSync("/sys/fs/cgroup").some((controller) => {
    const dir = path.join("/sys/fs/cgroup", controller);
    try {
      return readdirSync(dir).includes(`agent-sandbox-${engine.instance}`);
    } catch {
      return false;
    }
  });
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended with another of them.
  }
}
