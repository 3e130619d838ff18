import { existsSync, statfsSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RealEngine } from "../node/real-engine.ts";

let engine: RealEngine;

const mebibyte = 2 ** 20;
/** How far the disk is from its floor when the engine starts. */
const room = 500 * mebibyte;

beforeAll(async () => {
  const { bavail, bsize } = statfsSync("/tmp");
  engine = await RealEngine.open("--system-reserved-disk", String(bavail * bsize - room), "--default-pod-disk", "4Gi");
});

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

test("disk floor: who takes the machine's disk below it is ended, nobody else is, and nothing is made until there is room", async () => {
  const grace = { spec: { restartPolicy: "Never", containers: [{ name: "main" }] } } as const;
  await Promise.all([engine.startPod("neighbour"), engine.startPod("greedy", grace)]);
  await Promise.all([engine.readyPod("neighbour"), engine.readyPod("greedy")]);
  const fill = "dd if=/dev/zero of=/big bs=1M count=3500; sleep 30";
  const { exitCode } = await engine.sh("greedy", fill, { timeoutMs: 50_000 });
  expect(exitCode).toBe(137);
  const ended = await engine.podWhere("greedy", ({ status }) => status?.phase === "Failed");
  expect(ended.status).toMatchObject({
    reason: "Evicted",
    message: "The node was low on resource: ephemeral-storage. This Pod's files grew the most while the disk ran full",
  });
  expect((await engine.sh("neighbour", "echo alive")).stdout).toBe("alive\n");
  expect(await engine.kubectl("get", "events")).toMatch(/Evicted .*pod\/greedy/);
  // What it wrote goes with it, and the next pod finds room.
  await engine.removePod("greedy");
  expect(existsSync(path.join(engine.dataDir, "writable"))).toBe(true);
  await engine.startPod("next");
  await engine.readyPod("next");
});
