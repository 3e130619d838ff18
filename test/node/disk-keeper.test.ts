import { truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Pod } from "@agent-sandbox/api";
import { annotationKeys as known } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planLimits } from "../../packages/server/src/node/limits.ts";
import { NodeWorld } from "./node-world.ts";

const gibibyte = 2 ** 30;
const machine = { memoryBytes: 8 * gibibyte, diskBytes: 100 * gibibyte, pidsMax: 32_768 };
const { limits } = planLimits({ podDiskBytes: gibibyte, reservedDiskBytes: 5 * gibibyte }, machine);
const main = { name: "main", image: "host", command: ["sleep", "infinity"] };

/** The root file system of the one container of a pod. */
async function rootOf(world: NodeWorld, pod: Pod): Promise<string> {
  const prefix = (pod.metadata.uid ?? "").replaceAll("-", "");
  const found = (await world.fake.listRootfs()).find(({ id }) => id.startsWith(prefix));
  return found?.id ?? "";
}

function isRunning(pod: Pod): boolean {
  return pod.status?.phase === "Running";
}

function fullness(pod: Pod): string | undefined {
  return pod.status?.conditions?.find(({ type }) => type === "agent-sandbox.dev/DiskFull")?.status;
}

test("disk keeper: a full disk is a condition of its pod until there is room again, and of no other", async () => {
  await using world = await NodeWorld.start({ limits });
  for (const name of ["fills", "other"]) await world.createPod(name, { containers: [main] });
  const pod = await world.podWhere("fills", isRunning);
  await world.podWhere("other", isRunning);
  const root = await rootOf(world, pod);
  world.fake.written.set(root, gibibyte);
  const full = await world.podWhere("fills", (one) => fullness(one) === "True");
  expect(full.status?.conditions?.find(({ type }) => type === "agent-sandbox.dev/DiskFull")).toMatchObject({
    reason: "StorageLimit",
    message: "no space is left on the writable layer of container main (1024Mi)",
  });
  expect(full.status?.phase).toBe("Running");
  world.fake.written.delete(root);
  await world.podWhere("fills", (one) => fullness(one) === "False");
  expect(fullness(await world.getPod("other"))).toBeUndefined();
});

test("disk keeper: below the floor the pod that grows is ended at once, and the others stay", async () => {
  await using world = await NodeWorld.start({ limits });
  await world.agent?.stop();
  let freeBytes = 50 * gibibyte;
  await world.startAgent({ freeBytes: async () => freeBytes });
  for (const name of ["grows", "other"])
    await world.createPod(name, { containers: [main], terminationGracePeriodSeconds: 3600 });
  const pod = await world.podWhere("grows", isRunning);
  await world.podWhere("other", isRunning);
  const root = await rootOf(world, pod);
  freeBytes = gibibyte;
  let written = 0;
  const growing = setInterval(() => world.fake.written.set(root, (written += 20 * 2 ** 20)), 200);
  try {
    const ended = await world.podWhere("grows", ({ status }) => status?.phase === "Failed");
    expect(ended.status).toMatchObject({ reason: "Evicted" });
    expect(isRunning(await world.getPod("other"))).toBe(true);
  } finally {
    clearInterval(growing);
  }
});

test("disk keeper: a log that the runtime writes counts as its pod's, which is ended for it", async () => {
  await using world = await NodeWorld.start({ limits });
  await world.agent?.stop();
  let freeBytes = 50 * gibibyte;
  await world.startAgent({ freeBytes: async () => freeBytes });
  const annotations = { [known.daemon]: "disabled" };
  for (const name of ["shouts", "other"])
    await world.createPod(name, { containers: [main], terminationGracePeriodSeconds: 3600 }, annotations);
  const pod = await world.podWhere("shouts", isRunning);
  await world.podWhere("other", isRunning);
  const log = path.join(world.dataDir, "sandboxes", pod.metadata.uid ?? "", "main-0.out");
  freeBytes = gibibyte;
  let written = 0;
  const growing = setInterval(() => {
    writeFileSync(log, "");
    truncateSync(log, (written += 20 * 2 ** 20));
  }, 200);
  try {
    const ended = await world.podWhere("shouts", ({ status }) => status?.phase === "Failed");
    expect(ended.status).toMatchObject({ reason: "Evicted" });
    expect(isRunning(await world.getPod("other"))).toBe(true);
  } finally {
    clearInterval(growing);
  }
});
