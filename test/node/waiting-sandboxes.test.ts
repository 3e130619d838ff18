import { type Pod, pods } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { ContainerState, RunContainerRequest } from "../../packages/server/src/node/host/container.ts";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import type { RuleChange, RuleSet } from "../../packages/server/src/node/host/ruleset.ts";
import { slotsAhead } from "../../packages/server/src/node/network/slot-pool.ts";
import { stateOf } from "../host/contract-case.ts";
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
  return (await stateOf(world.fake, hostId))?.sandboxId ?? "";
}

/** Everything the host has besides free slots. */
async function footprint(world: NodeWorld): Promise<string[]> {
  const free = (await world.fake.listSlots()).filter(({ address }) => address === undefined).map(({ slot }) => slot);
  const none = {
    containers: [],
    rootfs: [],
    writableLayers: [],
    volumes: [],
    emptyDirs: [],
    files: [],
    cgroups: [],
    saved: [],
  };
  const { removed } = await world.fake.sweep({ ...none, slots: free, network: true });
  return removed.map(({ kind, name }) => `${kind} ${name}`);
}

/** How a verb fails the first time: which call, before its effect or with its answer lost, and who wants to know that it was done all the same. */
interface Failure {
  readonly isMeant?: (request: RunContainerRequest) => boolean;
  readonly takesEffect?: boolean;
  readonly onRepeat?: () => void;
}

/** A host that is away for the first call of a verb. */
function failingOnce(real: Host, verb: keyof Host, { isMeant, takesEffect = false, onRepeat }: Failure = {}): Host {
  let failed: string | undefined;
  return new Proxy(real, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name, target);
      if (typeof found !== "function") return found;
      if (name !== verb) return found.bind(target) as unknown;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        const asked = JSON.stringify(args[0]);
        const isFirst = failed === undefined && isMeant?.(args[0] as RunContainerRequest) !== false;
        if (isFirst) failed = asked;
        const answer: unknown = isFirst && !takesEffect ? undefined : await found.apply(target, args);
        if (isFirst) throw new HostError("unavailable", "sandbox-host does not answer");
        if (asked === failed) onRepeat?.();
        return answer;
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
  await world.startAgent({
    host: failingOnce(world.fake, "runContainer", { isMeant: ({ connect }) => connect !== undefined }),
  });
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

/** A host whose helper dies while it connects a sandbox, is away for a moment, and then finds that sandbox half connected. */
function cutInTheMiddle(real: Host): Host {
  let calls = 0;
  let isAway = false;
  return new Proxy(real, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name, target);
      if (typeof found !== "function") return found;
      return (...args: readonly unknown[]): unknown => {
        const isConnecting = name === "runContainer" && (args[0] as RunContainerRequest).connect !== undefined;
        if (isConnecting) calls += 1;
        if (isConnecting && calls > 1) return Promise.reject(new HostError("busy", "does not wait for a network"));
        if (!isConnecting && !(isAway && name === "deleteContainer")) return found.apply(target, args) as unknown;
        isAway = isConnecting;
        return Promise.reject(new HostError("unavailable", "sandbox-host does not answer"));
      };
    },
  });
}

test("waiting sandboxes: a helper that dies while it connects one costs the pod no run", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  await world.agent?.stop();
  await world.startAgent({ host: cutInTheMiddle(world.fake) });
  const ahead = await waitingSandbox(world);
  await world.createPod("half", sleeper);
  const pod = await world.podWhere("half", isReady);
  expect(await sandboxOf(world, pod)).not.toBe(ahead);
  expect(pod.status?.containerStatuses?.[0]?.restartCount).toBe(0);
  expect((await world.fake.listContainers()).some(({ id }) => id === ahead)).toBe(false);
});

test.each([
  ["before", "ensureSlot"],
  ["after", "ensureSlot"],
  ["after", "prepareRootfs"],
  ["before", "runContainer"],
  ["after", "runContainer"],
] as const)(
  "waiting sandboxes: one is made although the helper dies %s %s, and nothing besides it is left",
  async (when, verb) => {
    await using world = await NodeWorld.start();
    await world.agent?.stop();
    const none = {
      containers: [],
      rootfs: [],
      writableLayers: [],
      volumes: [],
      emptyDirs: [],
      files: [],
      cgroups: [],
      saved: [],
    };
    await world.fake.sweep({ ...none, slots: [], network: true });
    const again = Promise.withResolvers<void>();
    const failure = { takesEffect: when === "after", onRepeat: again.resolve };
    await world.startAgent({ host: failingOnce(world.fake, verb, failure), sandboxesAhead: 1 });
    await again.promise;
    await waitingSandbox(world);
    expect((await world.fake.listContainers()).filter(isWaiting)).toHaveLength(1);
    await expect.poll(async () => (await world.fake.listSlots()).length).toBe(1 + slotsAhead);
    await world.agent?.stop();
    expect(await footprint(world)).toEqual([]);
    expect(await world.fake.listSlots()).toHaveLength(slotsAhead);
  },
);

test.each([
  ["before", "deleteContainer"],
  ["before", "removeCgroup"],
  ["after", "releaseSlot"],
] as const)("waiting sandboxes: one that has ended is removed although the helper dies %s %s", async (when, verb) => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  await world.agent?.stop();
  const again = Promise.withResolvers<void>();
  const failure = { takesEffect: when === "after", onRepeat: again.resolve };
  await world.startAgent({ host: failingOnce(world.fake, verb, failure) });
  const ahead = await waitingSandbox(world);
  world.fake.exitContainer(ahead, 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  await world.createPod("other", sleeper);
  await world.podWhere("other", isReady);
  await again.promise;
  await world.client.delete(pods, { namespace: "default", name: "other" }, { gracePeriodSeconds: 0 });
  await world.podGone("other");
  await world.agent?.stop();
  expect(await footprint(world)).toEqual([]);
  expect(await world.fake.listSlots()).toHaveLength(slotsAhead);
});

test("waiting sandboxes: a pod whose rules are refused runs nothing, and starts once they are not", async () => {
  await using world = await NodeWorld.start({ sandboxesAhead: 1 });
  await world.agent?.stop();
  let isRefusing = true;
  const refused = new HostError("rules-rejected", "nft: no");
  const host = new Proxy<Host>(world.fake, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name, target);
      if (typeof found !== "function") return found;
      if (name !== "applyRules" && name !== "changeRules") return found.bind(target) as unknown;
      return (rules: RuleSet | RuleChange): unknown =>
        isRefusing && rules.endpoints.length > 0 ? Promise.reject(refused) : found.call(target, rules);
    },
  });
  await world.startAgent({ host });
  const ahead = await waitingSandbox(world);
  await world.createPod("ruleless", sleeper);
  const signal = AbortSignal.timeout(20_000);
  while ((await world.fake.listContainers()).some(({ id }) => id === ahead)) {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  // What joined the sandbox goes right after it.
  const joined = async () => (await world.fake.listContainers()).filter(({ id }) => !id.startsWith("ahead-"));
  await expect.poll(joined, { timeout: 5_000 }).toEqual([]);
  // The agent tries again every few milliseconds, and each time nothing may run.
  for (let look = 0; look < 60; look++) {
    expect(await joined()).toEqual([]);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  expect(isReady(await world.getPod("ruleless"))).toBe(false);
  isRefusing = false;
  expect(isReady(await world.podWhere("ruleless", isReady))).toBe(true);
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

/** A host with eight processors that keeps what containers were started with. */
function largeHost(real: Host, runs: RunContainerRequest[]): Host {
  return new Proxy(real, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name, target);
      if (typeof found !== "function") return found;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        if (name === "runContainer") runs.push(args[0] as RunContainerRequest);
        const answer: unknown = await found.apply(target, args);
        return name === "info" ? { ...(answer as object), cpus: 8 } : answer;
      };
    },
  });
}

test("waiting sandboxes: a pod gets one with its number of processors and its memory, and the next one made is like it", async () => {
  await using world = await NodeWorld.start();
  await world.agent?.stop();
  const runs: RunContainerRequest[] = [];
  await world.startAgent({ host: largeHost(world.fake, runs), sandboxesAhead: 1 });
  const resources = { limits: { cpu: "2500m", memory: "200Mi" } };
  const limited = { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"], resources }] };
  const wide = await waitingSandbox(world);
  expect(runs.find(({ id }) => id === wide)?.size?.cpus).toBe(8);
  await world.createPod("first", limited);
  const first = await world.podWhere("first", isReady);
  expect(await sandboxOf(world, first)).not.toBe(wide);
  const size = { cpus: 3, memoryBytes: 200 * 2 ** 20 };
  expect(
    runs.find(({ id }) => id === first.status?.containerStatuses?.[0]?.containerID?.split("/").at(-1)),
  ).toMatchObject({ size });
  const narrow = await waitingSandbox(world, [wide]);
  expect(runs.find(({ id }) => id === narrow)?.size?.cpus).toBe(3);
  expect((await world.fake.listContainers()).some(({ id }) => id === wide)).toBe(false);
  await world.createPod("second", limited);
  const second = await world.podWhere("second", isReady);
  expect(await sandboxOf(world, second)).toBe(narrow);
  expect(runs.find(({ sandboxId }) => sandboxId === narrow)?.connect?.memoryBytes).toBe(size.memoryBytes);
});
