import { execFileSync } from "node:child_process";
import { mkdtempSync, rmdirSync, statfsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type Condition, configMaps, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RealEngine, until } from "../node/real-engine.ts";

const mebibyte = 2 ** 20;
/** The whole disk of the engine, in memory: it fills up in seconds, and nothing else writes there. */
const diskBytes = 1_000 * mebibyte;
/** Below this much free space the node ends what grows. */
const floorBytes = 350 * mebibyte;
/** How fast the disk is filled: the node looks every second, and at 50 MiB a second it has seven of them below the floor. */
const bytesPerStep = 10 * mebibyte;
const stepSeconds = 0.2;

let disk: string;
let engine: RealEngine;
/** The least that was ever free. */
let leastBytes = Number.POSITIVE_INFINITY;
let watching: NodeJS.Timeout;

beforeAll(async () => {
  disk = mkdtempSync("/var/tmp/as-small-disk-");
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${diskBytes},mode=755`, "tmpfs", disk]);
  // A sandbox may write more than the disk has: what is tested is that the machine stops it, not its own limit.
  const flags = { "--system-reserved-disk": floorBytes, "--default-pod-disk": 2 * diskBytes };
  engine = await RealEngine.openIn(disk, ...Object.entries(flags).flatMap(([flag, value]) => [flag, String(value)]));
  watching = setInterval(() => (leastBytes = Math.min(leastBytes, freeBytes())), 50);
}, 60_000);

afterAll(async () => {
  clearInterval(watching);
  try {
    await engine?.[Symbol.asyncDispose]();
  } finally {
    execFileSync("umount", [disk]);
    rmdirSync(disk);
  }
}, 60_000);

function freeBytes(): number {
  const { bavail, bsize } = statfsSync(disk);
  return bavail * bsize;
}

async function startSandbox(name: string): Promise<void> {
  const main = { name: "main", image: "host", command: ["sleep", "infinity"] };
  await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace: "default" },
    spec: { podTemplate: { spec: { terminationGracePeriodSeconds: 1, containers: [main] } } },
  });
  await conditionOf(name, "Ready");
}

/** Resolves with a condition of a Sandbox once it is true. */
async function conditionOf(name: string, type: string): Promise<Condition> {
  const find = ({ status }: Sandbox): Condition | undefined =>
    status?.conditions?.find((condition) => condition.type === type && condition.status === "True");
  const found = await engine.objectWhere(sandboxes, { namespace: "default", name }, (one) => find(one) !== undefined);
  return find(found) as Condition;
}

/** Writes through the API all the while, each of which the store has to put on the same disk. */
async function writeUntil(isOver: () => boolean): Promise<number> {
  let written = 0;
  for (; !isOver(); written += 1) {
    const metadata = { name: `written-${written}`, namespace: "default" };
    await engine.client.create(configMaps, { apiVersion: "v1", kind: "ConfigMap", metadata, data: { at: "any time" } });
    await sleep(100);
  }
  return written;
}

test("disk pressure: who fills the machine's disk is evicted, its neighbour lives, and the engine can still write", async () => {
  await Promise.all([startSandbox("fills"), startSandbox("neighbour")]);
  expect(freeBytes()).toBeGreaterThan(2 * floorBytes);
  const script = [
    "import time",
    "f=open('/big','wb',buffering=0)",
    `while True: f.write(b'x'*${bytesPerStep}); time.sleep(${stepSeconds})`,
  ].join("\n");
  let isOver = false;
  const filling = engine.run("fills", ["/usr/bin/python3", "-c", script], { timeoutMs: 50_000 });
  filling.catch(() => undefined);
  const [evicted, written] = await Promise.all([
    conditionOf("fills", "Evicted").finally(() => (isOver = true)),
    writeUntil(() => isOver),
  ]);
  expect(evicted).toMatchObject({
    reason: "Evicted",
    message: expect.stringContaining("The node was low on resource: ephemeral-storage") as string,
  });
  expect(written).toBeGreaterThan(5);
  expect((await engine.client.get(sandboxes, { namespace: "default", name: "neighbour" })).status?.conditions).toEqual(
    expect.arrayContaining([expect.objectContaining({ type: "Ready", status: "True" })]),
  );
  expect((await engine.sh("neighbour", "echo still here > /root/file && cat /root/file")).stdout).toBe("still here\n");
  await until(async () => /Warning +Evicted +pod\/fills/.test(await engine.kubectl("get", "events")), 10_000);
});

test("disk pressure: what the evicted sandbox had is free again once it is deleted, and the next one starts", async () => {
  await engine.client.delete(sandboxes, { namespace: "default", name: "fills" });
  await until(() => freeBytes() > 2 * floorBytes, 30_000);
  await startSandbox("next");
  expect((await engine.sh("next", "echo hello")).stdout).toBe("hello\n");
  // What was still in memory when it was evicted went to the disk after that.
  console.log(`least free space: ${Math.round(leastBytes / mebibyte)} MiB of ${diskBytes / mebibyte}`);
  expect(leastBytes).toBeGreaterThan(floorBytes / 4);
});
