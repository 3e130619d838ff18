import { coreEvents, nodes, pods } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { SweepRequest } from "../../packages/server/src/node/host/host.ts";
import type { EnsureSlotRequest } from "../../packages/server/src/node/host/network.ts";
import { slotsAhead } from "../../packages/server/src/node/network/slot-pool.ts";
import { isReady, NodeWorld } from "./node-world.ts";

test("node agent: a pod with the built-in image runs, is ready, and is deleted within its grace", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("first", { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] });
  const running = await world.podWhere("first", isReady);
  expect(running.status?.phase).toBe("Running");
  expect(running.status?.podIP).toBe("10.200.255.254");
  expect(running.status?.qosClass).toBe("BestEffort");
  expect(running.status?.containerStatuses?.[0]).toMatchObject({
    name: "main",
    ready: true,
    started: true,
    restartCount: 0,
  });

  await world.client.delete(pods, { namespace: "default", name: "first" }, { gracePeriodSeconds: 5 });
  await world.podGone("first");
  expect(await world.fake.listContainers()).toEqual([]);
  expect(await world.fake.listRootfs()).toEqual([]);
  expect(world.fake.rules?.endpoints).toEqual([]);
});

test("node agent: a pod whose slot is gone when it is needed gets it made again", async () => {
  await using world = await NodeWorld.start();
  for (const { slot } of await world.fake.listSlots()) await world.fake.releaseSlot({ slot });
  await world.createPod("late", { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] });
  const { status } = await world.podWhere("late", isReady);
  expect(status?.containerStatuses?.[0]?.restartCount).toBe(0);
  expect((await world.fake.listSlots()).filter(({ address }) => address === status?.podIP)).toHaveLength(1);
});

test("node agent: slots that are still being made when it begins are not swept away", async () => {
  await using world = await NodeWorld.start();
  await world.agent?.stop();
  for (const { slot } of await world.fake.listSlots()) await world.fake.releaseSlot({ slot });
  const made: number[] = [];
  const host = new Proxy(world.fake, {
    get: (target, name) => {
      const verb: unknown = Reflect.get(target, name, target);
      if (name === "ensureSlot")
        return async (request: EnsureSlotRequest) => {
          await new Promise((resolve) => setTimeout(resolve, 30));
          const slot = await target.ensureSlot(request);
          made.push(request.slot);
          return slot;
        };
      if (name === "sweep")
        return async (request: SweepRequest) => {
          // A sweep meanwhile finds its slots in the middle of it.
          await new Promise((resolve) => setTimeout(resolve, 200));
          return target.sweep(request);
        };
      return typeof verb === "function" ? (verb.bind(target) as unknown) : verb;
    },
  });
  await world.startAgent({ host });
  await expect.poll(() => made.length).toBe(slotsAhead);
  expect(new Set((await world.fake.listSlots()).map(({ slot }) => slot))).toEqual(new Set(made));
});

test("node agent: a refused pod fails with its reason and touches nothing", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("kata", { runtimeClassName: "kata-qemu", containers: [{ name: "main", image: "host" }] });
  const failed = await world.podWhere("kata", ({ status }) => status?.phase === "Failed");
  expect(failed.status?.reason).toBe("RuntimeClassUnsupported");
  expect(failed.status?.message).toContain("kata-qemu");
  expect(await world.fake.listContainers()).toEqual([]);
});

test("node agent: a container that ends well under restartPolicy Never makes the pod Succeeded and frees its slot", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("job", {
    restartPolicy: "Never",
    containers: [{ name: "main", image: "host", command: ["sh", "-c", "echo hi; exit 0"] }],
  });
  const done = await world.podWhere("job", ({ status }) => status?.phase === "Succeeded");
  expect(done.status?.containerStatuses?.[0]?.state?.terminated).toMatchObject({ exitCode: 0, reason: "Completed" });
  await world.agent?.idle();
  expect((await world.fake.listSlots()).filter(({ address }) => address !== undefined)).toEqual([]);
});

test("node agent: a crashing container is restarted at once, then waits in CrashLoopBackOff", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("crash", { containers: [{ name: "main", image: "host", command: ["sh", "-c", "exit 3"] }] });
  const looping = await world.podWhere(
    "crash",
    ({ status }) => status?.containerStatuses?.[0]?.state?.waiting?.reason === "CrashLoopBackOff",
  );
  const [container] = looping.status?.containerStatuses ?? [];
  expect(container?.restartCount).toBe(1);
  expect(container?.lastState?.terminated).toMatchObject({ exitCode: 3, reason: "Error" });
  expect(container?.state?.waiting?.message).toMatch(
    /^back-off 10s restarting failed container=main pod=crash_default/,
  );
});

test("node agent: init containers run one after the other before the main ones", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("init", {
    initContainers: [
      { name: "one", image: "host", command: ["true"] },
      { name: "two", image: "host", command: ["true"] },
    ],
    containers: [{ name: "main", image: "host", command: ["sleep", "1d"] }],
  });
  const ready = await world.podWhere("init", isReady);
  expect(ready.status?.initContainerStatuses?.map(({ state }) => state?.terminated?.exitCode)).toEqual([0, 0]);
  const containers = await world.fake.listContainers();
  expect(containers.filter(({ status }) => status === "running")).toHaveLength(2);
});

test("node agent: a program that does not exist is a StartError, or the daemon's 127", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("nope", {
    restartPolicy: "Never",
    containers: [{ name: "main", image: "host", command: ["/no/such/program"] }],
  });
  const failed = await world.podWhere("nope", ({ status }) => status?.phase === "Failed");
  expect(failed.status?.containerStatuses?.[0]?.state?.terminated?.exitCode).toBe(127);
});

test("node agent: an image nobody has is ErrImagePull, and an event says so", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("absent", {
    containers: [{ name: "main", image: "localhost:1/no/such:1", imagePullPolicy: "IfNotPresent" }],
  });
  const waiting = await world.podWhere("absent", ({ status }) =>
    /ErrImagePull|ImagePullBackOff/.test(status?.containerStatuses?.[0]?.state?.waiting?.reason ?? ""),
  );
  expect(waiting.status?.phase).toBe("Pending");
  await world.agent?.idle();
  const events = (await world.client.list(coreEvents, { namespace: "default" })).items.map(({ reason }) => reason);
  expect(events).toContain("Failed");
});

test("node agent: a returning agent finds running containers again and reports an end it missed", async () => {
  await using world = await NodeWorld.start();
  await world.createPod("kept", {
    restartPolicy: "Never",
    containers: [{ name: "main", image: "host", command: ["sleep", "1d"] }],
  });
  await world.podWhere("kept", isReady);
  const [before] = await world.fake.listContainers();
  await world.agent?.stop();
  world.fake.exitContainer(before?.id ?? "", 7);
  await world.startAgent();
  const failed = await world.podWhere("kept", ({ status }) => status?.phase === "Failed");
  expect(failed.status?.containerStatuses?.[0]).toMatchObject({
    restartCount: 0,
    state: { terminated: { exitCode: 7 } },
  });
});

test("node agent: the node registers with capacity and a ready condition", async () => {
  await using world = await NodeWorld.start();
  const node = await world.client.get(nodes, { name: "node-a" });
  expect(node.status?.capacity).toMatchObject({ cpu: "2", pods: "110" });
  expect(node.status?.conditions?.find(({ type }) => type === "Ready")?.status).toBe("True");
});
