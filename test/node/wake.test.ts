import { annotationKeys, type Pod, pods, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { createClient, systemClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { FaultyTransport } from "../../packages/kube/src/testing/faulty-transport.ts";
import { isReady, NodeWorld, transportOf } from "./node-world.ts";

const address = "10.200.0.77";
const key = { namespace: "default", name: "box" };
const caller = { address, port: 8000, source: "10.200.0.5" };
const template = { spec: { containers: [{ name: "main", image: "host", command: ["sleep", "1d"] }] } };

async function createSandbox(world: NodeWorld): Promise<Sandbox> {
  return world.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { ...key, annotations: { "agent-sandbox.dev/address": address } },
    spec: { podTemplate: template, autoSuspension: { inactivityTimeoutSeconds: 60 } },
  } as Sandbox);
}

/** The Pod that the Sandbox's controller would make. */
async function createOwnedPod(world: NodeWorld, { metadata: { name, uid = "" } }: Sandbox): Promise<void> {
  const owner = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name, uid, controller: true };
  const pod: Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { ...key, ownerReferences: [owner] },
    spec: { nodeName: world.config.nodeName, ...template.spec },
  };
  const { metadata } = await world.client.create(pods, pod);
  const body = { status: { podUID: metadata.uid } };
  await world.client.patch(sandboxes, key, { type: "merge", body }, { subresource: "status" });
}

const lastActivity = async (world: NodeWorld) =>
  (await world.client.get(sandboxes, key)).metadata.annotations?.[annotationKeys.lastActivityAt];

const ruleOf = ({ fake }: NodeWorld) => fake.rules?.endpoints.find((rules) => rules.address === address);
const isAsleep = ({ fake }: NodeWorld) => fake.rules?.sleeping.some((rules) => rules.address === address) === true;

test("wake: who connects to a sleeping sandbox waits until its pod is ready, and nobody reaches it before", async () => {
  await using world = await NodeWorld.start();
  let isServing = false;
  await world.agent?.stop();
  await world.startAgent({ dialers: { http: async () => ({ isOk: isServing, message: "" }) } });
  const { fake } = world;
  const heldAtHandOver: (boolean | undefined)[] = [];
  const handOver = fake.handOver.bind(fake);
  fake.handOver = (request) => {
    heldAtHandOver.push(ruleOf(world)?.held);
    return handOver(request);
  };
  const sandbox = await createSandbox(world);
  await expect.poll(() => isAsleep(world)).toBe(true);
  fake.held.push(caller);
  await expect.poll(() => lastActivity(world)).toBeDefined();
  await createOwnedPod(world, sandbox);
  await expect.poll(() => ruleOf(world)?.held, { timeout: 10_000 }).toBe(true);
  expect([fake.held.length, heldAtHandOver]).toEqual([1, []]);
  isServing = true;
  await world.podWhere("box", isReady);
  await expect.poll(() => fake.held.length).toBe(0);
  expect([heldAtHandOver, ruleOf(world)?.held]).toEqual([[undefined], undefined]);
});

test("wake: before a pod that traffic wakes again is told to stop, its callers wait", async () => {
  await using world = await NodeWorld.start();
  const { fake } = world;
  const sandbox = await createSandbox(world);
  await createOwnedPod(world, sandbox);
  await world.podWhere("box", isReady);
  await expect.poll(() => ruleOf(world)?.held).toBeUndefined();
  const heldAtKill: (boolean | undefined)[] = [];
  const killContainer = fake.killContainer.bind(fake);
  fake.killContainer = (request) => {
    heldAtKill.push(ruleOf(world)?.held);
    return killContainer(request);
  };
  await world.client.delete(pods, key, { gracePeriodSeconds: 1 });
  await world.podGone("box");
  expect(heldAtKill[0]).toBe(true);
  await expect.poll(() => isAsleep(world)).toBe(true);
});

test("wake: a report that the API did not take is made again", async () => {
  await using world = await NodeWorld.start();
  await world.agent?.stop();
  let refusals = 0;
  const isReport = (path: string, method: string | undefined): boolean =>
    method === "PATCH" && path.includes("/sandboxes/box");
  const transport = new FaultyTransport({
    transport: transportOf(world.server),
    random: Math.random,
    clock: systemClock,
    rates: ({ path, method }) => {
      if (!isReport(path, method) || refusals >= 12) return {};
      refusals += 1;
      return { lostRequest: 1 };
    },
  });
  await world.startAgent({ client: createClient(transport) });
  await createSandbox(world);
  await expect.poll(() => isAsleep(world)).toBe(true);
  world.fake.held.push(caller);
  await expect.poll(() => lastActivity(world), { timeout: 10_000 }).toBeDefined();
  expect(refusals).toBe(12);
});
