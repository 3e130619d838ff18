import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type { Pod } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { killRole } from "./engine-processes.ts";
import { processTable } from "./footprint.ts";
import { isReady, RealEngine, until } from "./real-engine.ts";

let engine: RealEngine;

beforeAll(async () => {
  engine = await RealEngine.open();
}, 180_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

/** Sandboxes made ahead that run, those of pods included, by the directories of their containers. */
function madeAhead(): string[] {
  return readdirSync(path.join(engine.hostDir, "containers")).filter((id) => id.startsWith("ahead-"));
}

/** One that waits: it is not connected yet. */
function waiting(): string[] {
  return madeAhead().filter((id) => readdirSync(path.join(engine.hostDir, "containers", id)).includes("waiting.name"));
}

/** Resolves when a sandbox waits and the node knows it. */
async function oneWaits(): Promise<string> {
  await until(() => waiting().some(isRunning));
  await new Promise((resolve) => setTimeout(resolve, 100));
  return waiting()[0] ?? "";
}

function isRunning(id: string): boolean {
  return recordOf(id)["running"] === true;
}

function recordOf(id: string): Record<string, unknown> {
  return JSON.parse(readFileSync(path.join(engine.hostDir, "containers", id, "record.json"), "utf8")) as Record<
    string,
    unknown
  >;
}

function sandboxOf(pod: Pod): string {
  const hostId = pod.status?.containerStatuses?.[0]?.containerID?.split("/").at(-1) ?? "";
  return String(recordOf(hostId)["sandboxId"]);
}

/** The limit of memory that a process is under. */
function memoryLimitOf(pid: number): number {
  const lines = readFileSync(`/proc/${pid}/cgroup`, "utf8").trim().split("\n");
  const v1 = lines.find((line) => line.split(":")[1]?.split(",").includes("memory"));
  if (v1 !== undefined)
    return Number(readFileSync(`/sys/fs/cgroup/memory${v1.split(":")[2]}/memory.limit_in_bytes`, "utf8"));
  return Number(readFileSync(`/sys/fs/cgroup${lines.at(-1)?.split(":")[2]}/memory.max`, "utf8"));
}

const mebibyte = 2 ** 20;

function limited(memory: string): Partial<Pod> {
  return { spec: { containers: [{ name: "main", resources: { limits: { memory } } }] } };
}

test("waiting sandboxes: a pod that joins one has its own name, address, network, processes and limits", async () => {
  const ahead = await oneWaits();
  await engine.startPod("joins", limited("100Mi"));
  const pod = await engine.readyPod("joins");
  expect(sandboxOf(pod)).toBe(ahead);
  const look = await engine.sh("joins", "hostname; cat /etc/hostname; cat /proc/1/comm; grep CapEff /proc/1/status");
  expect(look.stdout.split("\n").slice(0, 3)).toEqual(["joins", "joins", "sandboxd"]);
  // A pod that waited had the right to change its name; what joined it has what a container has by default.
  const sysAdmin = 1n << 21n;
  expect(BigInt(`0x${/CapEff:\s*([0-9a-f]+)/.exec(look.stdout)?.[1] ?? "0"}`) & sysAdmin).toBe(0n);
  const python =
    "import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 9)); print(s.getsockname()[0])";
  expect((await engine.run("joins", ["python3", "-c", python])).stdout.trim()).toBe(pod.status?.podIP);
  const loop =
    "import socket; s=socket.socket(); s.bind(('127.0.0.5',0)); s.listen(); socket.create_connection(s.getsockname(), 5)";
  expect((await engine.run("joins", ["python3", "-c", loop])).exitCode).toBe(0);
  const processes = processTable().filter(
    ({ command }) => command.startsWith("runsc-") && command.includes(engine.dataDir) && command.includes(`${ahead}_`),
  );
  expect(processes.length).toBeGreaterThan(0);
  for (const { pid } of processes) expect(memoryLimitOf(pid)).toBe((100 + 64) * mebibyte);
});

test("waiting sandboxes: what takes more memory than its limit is killed for it, and comes up again in a sandbox of its own", async () => {
  await oneWaits();
  const grow = "x = bytearray(600 << 20); import time; time.sleep(600)";
  const script = `if [ -e /tmp/mark/again ]; then exec sleep infinity; fi; touch /tmp/mark/again; exec python3 -c '${grow}'`;
  const spec = limited("100Mi").spec;
  const [main] = spec?.containers ?? [];
  await engine.startPod("grows", {
    command: ["sh", "-c", script],
    spec: {
      volumes: [{ name: "mark", emptyDir: {} }],
      containers: [{ name: "main", ...main, volumeMounts: [{ name: "mark", mountPath: "/tmp/mark" }] }],
    },
  });
  const again = await engine.podWhere(
    "grows",
    (pod) => isReady(pod) && pod.status?.containerStatuses?.[0]?.restartCount === 1,
  );
  expect(again.status?.containerStatuses?.[0]?.lastState?.terminated?.reason).toBe("OOMKilled");
  expect(sandboxOf(again)).not.toMatch(/^ahead-/);
  expect((await engine.run("grows", ["hostname"])).stdout).toBe("grows\n");
});

test.each(["node", "sandbox-host"] as const)(
  "waiting sandboxes: after kill -9 of %s one waits again, and none is left over",
  async (role) => {
    const before = await oneWaits();
    const mine = madeAhead().filter((id) => !waiting().includes(id));
    await killRole(engine, role);
    await engine.startPod(`after-${role}`);
    await engine.readyPod(`after-${role}`);
    await oneWaits();
    await until(() => waiting().length === 1);
    // One that a returning node did not know is gone; one that a returning helper still has may have become the pod's.
    if (role === "node") expect(madeAhead()).not.toContain(before);
    for (const id of mine) expect(madeAhead()).toContain(id);
    await engine.removePod(`after-${role}`);
  },
);
