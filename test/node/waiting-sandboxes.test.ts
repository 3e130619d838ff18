import { type Pod, pods } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { ContainerState, RunContainerRequest } from "../../packages/server/src/node/host/container.ts";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import { isReady, NodeWorld } from "./node-world.ts";

const sleeper = { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] };

const isWaiting = ({ id, status }: ContainerState): boolean => id.startsWith("ahead-") && status === "running";

/** The sandbox that waits, once there is one that a pod has not taken. */
async function waitingSandbox(world: NodeWorld, taken: readonly string[] = []): Promise<string> {
  const signal = AbortSignal.timeout(20_000);
  for (;;) {
    const found = (await world.fake.listContainers()).find((state) => isWaiting(state) && !taken.includes(state.id));
    if (found !== undefined) {
      // What the host has is the agent's a moment later.
      await new Promise((resolve) => setTimeout(resolve, 20));
      return found.id;
    }
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The sandbox that a pod's container is in. */
async function sandboxOf(world: NodeWorld, pod: Pod): Promise<string> {
  const hostId = pod.status?.containerStatuses?.[0]?.containerID?.split("/").at(-1) ?? "";
  return (await world.fake.containerState({ id: hostId })).sandboxId;
}

/** Everything the host has besides free slots. */
async function footprint(world: NodeWorld): Promise<string[]> {
  const free = (await world.fake.listSlots()).filter(({ address }) => address === undefined).map(({ slot }) => slot);
  const none = { containers: [], rootfs: [], writableLayers: [], volumes: [], emptyDirs: [], files: [], cgroups: [] };
  const { removed } = await world.fake.sweep({ ...none, slots: free, network: true });
  return removed.map(({ kind, name }) => `${kind} ${name}`);
}

/** A host one of whose verbs fails the first time. */
function failingToConnectOnce(real: Host): Host {
  let isDone = false;
  return new Proxy(real, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name, target);
      if (name !== "runContainer") return typeof found === "function" ? (found.bind(target) as unknown) : found;
      return (request: RunContainerRequest, signal?: AbortSignal) => {
        if (request.connect === undefined || isDone) return target.runContainer(request, signal);
        isDone = true;
        return Promise.reject(new HostError("unavailable", "sandbox-host does not answer"));
      };
    },
  });
}

test("waiting sandboxes: a pod of one container joins one, with its address, its name and its limits, and another is made", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  const ahead = await waitingSandbox(world);
  await world.createPod("joins", sleeper);
  const pod = await world.podWhere("joins", isReady);
  expect(await sandboxOf(world, pod)).toBe(ahead);
  const slots = (await world.fake.listSlots()).filter(({ address }) => address === pod.status?.podIP);
  expect(slots).toHaveLength(1);
  expect(world.fake.rules?.endpoints.map(({ slot }) => slot)).toEqual(slots.map(({ slot }) => slot));
  expect(await waitingSandbox(world, [ahead])).not.toBe(ahead);
});

test("waiting sandboxes: a pod of two containers makes its own sandbox", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  const ahead = await waitingSandbox(world);
  const [main] = sleeper.containers;
  await world.createPod("two", {
    containers: [
      { ...main, name: "one" },
      { ...main, name: "two" },
    ] as never,
  });
  const pod = await world.podWhere("two", isReady);
  expect(await sandboxOf(world, pod)).not.toBe(ahead);
});

test("waiting sandboxes: a container's second run has a sandbox of its own, and the first one's is gone", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  const ahead = await waitingSandbox(world);
  await world.createPod("again", sleeper);
  const first = await world.podWhere("again", isReady);
  world.fake.exitContainer(first.status?.containerStatuses?.[0]?.containerID?.split("/").at(-1) ?? "", 1);
  const second = await world.podWhere(
    "again",
    (pod) => isReady(pod) && pod.status?.containerStatuses?.[0]?.restartCount === 1,
  );
  const containers = await world.fake.listContainers();
  expect(containers.some(({ id }) => id === ahead)).toBe(false);
  expect(await sandboxOf(world, second)).not.toMatch(/^ahead-/);
  expect(second.status?.podIP).toBe(first.status?.podIP);
});

test("waiting sandboxes: a pod whose sandbox ends is started again in its own", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  const ahead = await waitingSandbox(world);
  await world.createPod("lost", sleeper);
  await world.podWhere("lost", isReady);
  world.fake.exitContainer(ahead, 137);
  const again = await world.podWhere(
    "lost",
    (pod) => isReady(pod) && pod.status?.containerStatuses?.[0]?.restartCount === 1,
  );
  expect(await sandboxOf(world, again)).not.toBe(ahead);
});

test("waiting sandboxes: one that has ended is given to nobody", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  const ahead = await waitingSandbox(world);
  world.fake.exitContainer(ahead, 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  await world.createPod("lives", sleeper);
  const pod = await world.podWhere("lives", isReady);
  expect(await sandboxOf(world, pod)).not.toBe(ahead);
  await waitingSandbox(world);
  expect((await world.fake.listContainers()).some(({ id }) => id === ahead)).toBe(false);
});

test("waiting sandboxes: a connection that is cut off is not tried again, the pod starts all the same and leaves nothing", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  await world.agent?.stop();
  await world.startAgent({ host: failingToConnectOnce(world.fake) });
  const ahead = await waitingSandbox(world);
  await world.createPod("cut", sleeper);
  const pod = await world.podWhere("cut", isReady);
  expect(await sandboxOf(world, pod)).not.toBe(ahead);
  expect((await world.fake.listContainers()).some(({ id }) => id === ahead)).toBe(false);
  await world.client.delete(pods, { namespace: "default", name: "cut" }, { gracePeriodSeconds: 0 });
  await world.podGone("cut");
  await world.agent?.stop();
  expect(await footprint(world)).toEqual([]);
});

test("waiting sandboxes: an agent that stops takes them along, one that died leaves them to its successor's sweep", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  const ahead = await waitingSandbox(world);
  await world.createPod("stays", sleeper);
  const before = await world.podWhere("stays", isReady);
  const next = await waitingSandbox(world, [ahead]);
  await world.agent?.stop();
  expect((await world.fake.listContainers()).some(({ id }) => id === next)).toBe(false);
  await world.startAgent();
  const after = await world.podWhere("stays", isReady);
  expect(await sandboxOf(world, after)).toBe(ahead);
  expect(after.status?.containerStatuses?.[0]?.containerID).toBe(before.status?.containerStatuses?.[0]?.containerID);
});

test("waiting sandboxes: none is made where none is asked for", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("alone", sleeper);
  const pod = await world.podWhere("alone", isReady);
  expect(await sandboxOf(world, pod)).not.toMatch(/^ahead-/);
  expect((await world.fake.listContainers()).filter(isWaiting)).toEqual([]);
});
