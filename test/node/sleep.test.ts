import {
  annotationKeys,
  coreEvents,
  findCondition,
  type Pod,
  pods,
  type SleepWish,
  sandboxes,
  sleepAnswerOf,
} from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import type { ProbeDialers } from "../../packages/server/src/node/probes/probe-check.ts";
import { isReady, NodeWorld } from "./node-world.ts";
import { nameWish, startSandbox } from "./sleeping-sandbox.ts";

const readyReason = (pod: Pod): string | undefined => findCondition(pod.status?.conditions, "Ready")?.reason;
const answers =
  (reason: string, id = "1") =>
  (pod: Pod): boolean => {
    const answer = sleepAnswerOf(pod);
    return answer?.reason === reason && answer.id === id;
  };
const freeze: SleepWish = { id: "1", rung: "Freeze" };

async function frozenGroups(world: NodeWorld): Promise<string[]> {
  return [...world.fake.cgroups.ids()].filter((id) => world.fake.cgroups.isFrozen(id));
}

test("node sleep: a wish freezes the pod, and its end thaws it with one write", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box");
  await nameWish(world, sandbox, freeze);
  const frozen = await world.podWhere("box", answers("Frozen"));
  expect(readyReason(frozen)).toBe("Frozen");
  expect(frozen.status?.containerStatuses).toMatchObject([{ ready: true, restartCount: 0 }]);
  expect(await frozenGroups(world)).toHaveLength(1);
  const before = Number(frozen.metadata.resourceVersion);
  await nameWish(world, sandbox, null);
  const awake = await world.podWhere("box", isReady);
  expect(sleepAnswerOf(awake)).toEqual({ id: "", reason: "Awake", message: "" });
  expect(await frozenGroups(world)).toEqual([]);
  const list = await world.client.list(pods, { namespace: "default" });
  expect(list.items[0]?.metadata.resourceVersion).toBe(awake.metadata.resourceVersion);
  expect(Number(awake.metadata.resourceVersion)).toBeGreaterThan(before);
});

test("node sleep: traffic after the wish thaws the pod before the controller has withdrawn it, and a later wish freezes it again", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box", {}, { wakePolicy: "OnTraffic" });
  const wishMs = Date.now();
  await nameWish(world, sandbox, { ...freeze, id: String(wishMs) });
  await world.podWhere("box", answers("Frozen", String(wishMs)));
  const at = new Date(wishMs + 5).toISOString();
  const body = { metadata: { annotations: { [annotationKeys.lastActivityAt]: at } } };
  await world.client.patch(sandboxes, { namespace: "default", name: "box" }, { type: "merge", body });
  const awake = await world.podWhere("box", isReady);
  expect(sleepAnswerOf(awake)).toMatchObject({ id: "", reason: "Awake" });
  expect(await frozenGroups(world)).toEqual([]);
  await nameWish(world, sandbox, { ...freeze, id: String(wishMs + 5) });
  await world.podWhere("box", answers("Frozen", String(wishMs + 5)));
});

test("node sleep: a wish that names another pod, or comes of a Sandbox that does not name this one, freezes nothing", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box");
  const { name, uid = "" } = sandbox.metadata;
  const reference = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name, uid, controller: true };
  const thief: Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "thief", namespace: "default", ownerReferences: [reference] },
    spec: { nodeName: world.config.nodeName, containers: [{ name: "main", image: "host", command: ["sleep", "1d"] }] },
  };
  await world.client.create(pods, thief);
  await nameWish(world, sandbox, freeze);
  await world.podWhere("box", answers("Frozen"));
  await world.agent?.idle();
  expect(sleepAnswerOf(await world.getPod("thief"))).toBeUndefined();
  expect(await frozenGroups(world)).toHaveLength(1);
});

test("node sleep: a pod that is deleted while it is frozen goes without its grace period", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box");
  await nameWish(world, sandbox, freeze);
  await world.podWhere("box", answers("Frozen"));
  const startMs = performance.now();
  await world.client.delete(pods, { namespace: "default", name: "box" }, { gracePeriodSeconds: 60 });
  await world.podGone("box");
  expect(performance.now() - startMs).toBeLessThan(20_000);
  expect([...world.fake.cgroups.ids()]).toEqual([]);
  expect(await world.fake.listContainers()).toEqual([]);
});

test("node sleep: an agent that comes back finds what is frozen, and wakes it when that is not wished any more", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box");
  await nameWish(world, sandbox, freeze);
  await world.podWhere("box", answers("Frozen"));
  await world.agent?.stop();
  await world.startAgent();
  await world.agent?.idle();
  expect(sleepAnswerOf(await world.getPod("box"))).toMatchObject({ id: "1", reason: "Frozen" });
  await world.agent?.stop();
  await nameWish(world, sandbox, null);
  await world.startAgent();
  await world.podWhere("box", isReady);
  expect(await frozenGroups(world)).toEqual([]);
});

test("node sleep: a freeze that the host refuses is said, and tried again", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box");
  world.fake.cgroups.freezeFails = new HostError("deadline-exceeded", "a process does not stop");
  await nameWish(world, sandbox, freeze);
  const failed = await world.podWhere("box", answers("SleepFailed"));
  expect(sleepAnswerOf(failed)?.message).toBe("a process does not stop");
  expect(isReady(failed)).toBe(true);
  world.fake.cgroups.freezeFails = undefined;
  await world.podWhere("box", answers("Frozen"));
});

test("node sleep: a thaw that fails is an event of the pod's resume, and is tried again", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box");
  await nameWish(world, sandbox, freeze);
  await world.podWhere("box", answers("Frozen"));
  world.fake.cgroups.thawFails = new HostError("deadline-exceeded", "a process does not go on");
  await nameWish(world, sandbox, null);
  const warnings = async (): Promise<(string | undefined)[]> =>
    (await world.client.list(coreEvents, { namespace: "default" })).items
      .filter(({ type }) => type === "Warning")
      .map(({ reason, message }) => `${reason}: ${message}`);
  await expect.poll(warnings, { timeout: 10_000 }).not.toEqual([]);
  const told = "FailedResume: Failed to let the frozen pod go on: a process does not go on";
  expect(new Set(await warnings())).toEqual(new Set([told]));
  world.fake.cgroups.thawFails = undefined;
  await world.podWhere("box", isReady);
});

test("node sleep: a pod that stands still unknown to its agent is not saved as it is, and is after its thaw", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box");
  for (const id of world.fake.cgroups.ids()) world.fake.cgroups.freeze(id);
  await nameWish(world, sandbox, { id: "1", rung: "Hibernate" });
  const failed = await world.podWhere("box", answers("SleepFailed"));
  expect(sleepAnswerOf(failed)?.message).toContain("is frozen");
  await world.podWhere("box", answers("Saved"));
});

test("node sleep: probes neither run nor count while a pod is frozen, and none delays its wake", async () => {
  await using world = await NodeWorld.start();
  await world.agent?.stop();
  let probes = 0;
  const tcp: ProbeDialers["tcp"] = async () => {
    probes += 1;
    return { isOk: (await frozenGroups(world)).length === 0, message: "frozen" };
  };
  await world.startAgent({ dialers: { tcp } });
  const probe = { tcpSocket: { port: 80 }, periodSeconds: 1, failureThreshold: 1 };
  const sandbox = await startSandbox(world, "box", { livenessProbe: probe, readinessProbe: probe });
  await nameWish(world, sandbox, freeze);
  await world.podWhere("box", answers("Frozen"));
  const before = probes;
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  expect(probes).toBe(before);
  await world.agent?.stop();
  await world.startAgent({ dialers: { tcp } });
  await nameWish(world, sandbox, null);
  const awake = await world.podWhere("box", isReady);
  expect(awake.status?.containerStatuses).toMatchObject([{ ready: true, restartCount: 0 }]);
  await expect.poll(() => probes, { timeout: 5_000 }).toBeGreaterThan(before);
});

test("node sleep: connections to a frozen sandbox that traffic wakes are held", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await startSandbox(world, "box", {}, { wakePolicy: "OnTraffic" });
  const isHeld = (): boolean =>
    world.fake.rules?.sleeping.some(({ address }) => address === "10.200.0.77") === true ||
    world.fake.rules?.endpoints.some(({ address, held }) => address === "10.200.0.77" && held === true) === true;
  expect(isHeld()).toBe(false);
  await nameWish(world, sandbox, freeze);
  await world.podWhere("box", answers("Frozen"));
  expect(isHeld()).toBe(true);
  await nameWish(world, sandbox, null);
  await world.podWhere("box", isReady);
  expect(isHeld()).toBe(false);
});
