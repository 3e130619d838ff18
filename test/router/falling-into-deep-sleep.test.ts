import type { Pod, PodCondition, Sandbox } from "@agent-sandbox/api";
import {
  annotationKeys,
  pods,
  restoredCondition,
  runtimeVersionCondition,
  type SleepAnswer,
  sandboxes,
  sandboxPhase,
  sandboxTemplates,
  sleepAnswer,
} from "@agent-sandbox/api";
import type { KubeRequest, Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Ground } from "../simulation/ground.ts";
import { condition, namespace, sandbox, template } from "../simulation/objects.ts";
import { World } from "../simulation/world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

type Deep = "Freeze" | "Hibernate";
const key = { namespace, name: "a" };
const idle = (type: Deep): Partial<Sandbox["spec"]> => ({
  autoSuspension: { inactivityTimeoutSeconds: 60 },
  suspensionStrategy: { type },
});

/** A world with one Sandbox whose Pod runs on a node that answers; the test is that node. */
async function openWorld(spec: Partial<Sandbox["spec"]>, disturb?: (inner: Transport) => Transport): Promise<World> {
  const world = await World.open({ ground, ...(disturb !== undefined && { disturb }) });
  await world.applied(sandboxes, sandbox("a", spec));
  await says(world, { type: runtimeVersionCondition, status: "True", reason: "Installed", message: "runsc 1" });
  return world;
}

const found = (world: World): Promise<Sandbox> => world.client.get(sandboxes, key);
const podOf = async (world: World): Promise<Pod | undefined> =>
  (await world.pods()).find(({ metadata }) => metadata.name === "a");

/** The node sets a condition of the Pod. */
async function says(world: World, said: PodCondition): Promise<void> {
  const pod = await podOf(world);
  const others = pod?.status?.conditions?.filter(({ type }) => type !== said.type) ?? [];
  await world.client.patch(
    pods,
    key,
    { type: "merge", body: { status: { conditions: [...others, said] } } },
    { subresource: "status" },
  );
  await world.settled();
}

async function answers(world: World, reason: SleepAnswer["reason"], id?: string): Promise<void> {
  const wish = (await found(world)).status?.sleep;
  const savedBytes = reason === "Saved" ? { savedBytes: 4096 } : {};
  await says(world, sleepAnswer({ id: id ?? wish?.id ?? "", reason, message: "words", ...savedBytes }));
}

async function reportActivity(world: World): Promise<Sandbox> {
  const at = new Date(world.clock.nowMs()).toISOString();
  const body = { metadata: { annotations: { [annotationKeys.lastActivityAt]: at } } };
  return world.client.patch(sandboxes, key, { type: "merge", body });
}

async function patchSpec(world: World, spec: object): Promise<void> {
  await world.client.patch(sandboxes, key, { type: "merge", body: { spec } });
  await world.settled();
}

const reasonOf = async (world: World): Promise<(string | undefined)[]> => {
  const now = await found(world);
  return [condition(now, "Suspended")?.reason, condition(now, "Ready")?.reason, sandboxPhase(now).phase];
};

test.each(["Freeze", "Hibernate"] as const)(
  "falling into deep sleep: %s is announced with its wish, before the node is asked, and the Pod stays",
  async (type) => {
    await using world = await openWorld(idle(type));
    const uid = (await podOf(world))?.metadata.uid;
    await world.advance(61_000);
    const reason = type === "Freeze" ? "PodFreezing" : "PodHibernating";
    expect(await reasonOf(world)).toEqual([reason, "SandboxSuspended", "suspending"]);
    const { sleep } = (await found(world)).status ?? {};
    expect(sleep).toEqual({ id: expect.stringMatching(/^\d+$/), rung: type });
    await world.advance(5_000);
    expect((await found(world)).status?.sleep).toEqual(sleep);
    expect((await podOf(world))?.metadata).toMatchObject({ uid });
  },
);

test("falling into deep sleep: Freeze, wake by activity, and Ready only when the node says that it runs", async () => {
  await using world = await openWorld(idle("Freeze"));
  await world.advance(61_000);
  await answers(world, "Frozen");
  expect(await reasonOf(world)).toEqual(["PodFrozen", "SandboxSuspended", "frozen"]);
  const uid = (await podOf(world))?.metadata.uid;
  await reportActivity(world);
  await world.settled();
  expect(await reasonOf(world)).toEqual(["NotSuspended", "DependenciesNotReady", "starting"]);
  expect((await found(world)).status?.sleep).toBeUndefined();
  await answers(world, "Awake", "");
  expect(await reasonOf(world)).toEqual(["NotSuspended", "DependenciesReady", "ready"]);
  expect((await podOf(world))?.metadata.uid).toBe(uid);
});

test("falling into deep sleep: Hibernate says what was saved before the Pod goes, and is whole again after the restore", async () => {
  const order: string[] = [];
  const watch = (inner: Transport): Transport => ({
    ...inner,
    request: (request) => {
      if (isNote(request)) order.push("noted");
      if (isPodDeletion(request)) order.push(`deleted with ${preconditionsOf(request)}`);
      return inner.request(request);
    },
    upgrade: (request) => inner.upgrade(request),
    close: () => inner.close(),
  });
  await using world = await openWorld(idle("Hibernate"), watch);
  await world.advance(61_000);
  await answers(world, "Saved", "1");
  expect(order).toEqual([]);
  await answers(world, "Saved");
  expect(order).toEqual(["noted", "deleted with resourceVersion,uid"]);
  expect(await reasonOf(world)).toEqual(["PodHibernated", "SandboxSuspended", "hibernated"]);
  expect((await found(world)).status?.sleep).toMatchObject({ rung: "Hibernate", savedBytes: 4096 });
  world.cluster.node.unready = () => true;
  await reportActivity(world);
  await world.settled();
  // The node says that it restores before it says that the Pod runs; the played cluster does not, so that the memory counts as not used.
  expect((await found(world)).status?.sleep).toBeUndefined();
  expect(await reasonOf(world)).toEqual(["NotSuspended", "DependenciesNotReady", "starting"]);
});

/** Puts the Sandbox to sleep by Hibernate and wakes it, with its new Pod not running yet. */
async function waking(): Promise<World> {
  const world = await openWorld(idle("Hibernate"));
  await world.advance(61_000);
  await answers(world, "Saved");
  world.cluster.node.frozen = true;
  await reportActivity(world);
  await world.settled();
  return world;
}

const restore = (status: "True" | "False", reason: string): PodCondition => ({
  type: restoredCondition,
  status,
  reason,
  message: "words",
});

test("falling into deep sleep: what was saved stays in the status until all of it is read", async () => {
  await using world = await waking();
  expect(await reasonOf(world)).toEqual(["NotSuspended", "SandboxRestoring", "restoring"]);
  await says(world, restore("False", "Restoring"));
  world.cluster.node.frozen = false;
  await runsWith(world, restore("False", "Restoring"));
  expect(await reasonOf(world)).toEqual(["NotSuspended", "DependenciesReady", "ready"]);
  expect((await found(world)).status?.sleep?.savedBytes).toBe(4096);
  await says(world, restore("True", "Restored"));
  expect((await found(world)).status?.sleep).toBeUndefined();
});

/** The node says at once that the Pod runs and how far its memory is. */
async function runsWith(world: World, said: PodCondition): Promise<void> {
  const status = {
    phase: "Running",
    podIPs: [{ ip: "10.9.9.9" }],
    conditions: [
      { type: "PodScheduled", status: "True" },
      { type: "Ready", status: "True" },
      { type: runtimeVersionCondition, status: "True" },
      said,
    ],
  };
  await world.client.patch(pods, key, { type: "merge", body: { status } }, { subresource: "status" });
  await world.settled();
}

test("falling into deep sleep: a failed restore keeps what was saved, tries nothing again, and starts cold when told", async () => {
  await using world = await waking();
  const { sleep } = (await found(world)).status ?? {};
  await says(world, restore("False", "RestoreFailed"));
  expect(await reasonOf(world)).toEqual(["NotSuspended", "RestoreFailed", "restore-failed"]);
  expect(condition(await found(world), "Ready")?.message).toBe("words");
  world.cluster.node.frozen = false;
  await world.settled();
  await reportActivity(world);
  await world.advance(3_600_000);
  expect(await podOf(world)).toBeUndefined();
  expect((await found(world)).status?.sleep).toEqual(sleep);
  const body = { metadata: { annotations: { [annotationKeys.coldStart]: sleep?.id } } };
  await world.client.patch(sandboxes, key, { type: "merge", body });
  await world.settled();
  expect((await reasonOf(world)).slice(1)).toEqual(["DependenciesReady", "ready"]);
  expect((await found(world)).status?.sleep).toBeUndefined();
});

test("falling into deep sleep: a user's suspension and resume try a failed restore again", async () => {
  await using world = await waking();
  await says(world, restore("False", "RestoreFailed"));
  world.cluster.node.frozen = false;
  await world.settled();
  await patchSpec(world, { operatingMode: "Suspended" });
  expect((await reasonOf(world))[0]).toBe("PodHibernated");
  world.cluster.node.frozen = true;
  await patchSpec(world, { operatingMode: "Running" });
  expect((await reasonOf(world))[2]).toBe("restoring");
});

test("falling into deep sleep: a node that fails is quoted, and activity wakes the Sandbox as ever", async () => {
  await using world = await openWorld(idle("Hibernate"));
  await world.advance(61_000);
  await answers(world, "SleepFailed");
  expect(await reasonOf(world)).toEqual(["SuspensionFailed", "SandboxSuspended", "suspending"]);
  expect(condition(await found(world), "Suspended")?.message).toContain("words");
  await reportActivity(world);
  await world.settled();
  expect((await reasonOf(world))[2]).toBe("ready");
});

test.each(["Freeze", "Hibernate"] as const)(
  "falling into deep sleep: a user's own %s is announced too, after its moment was written down",
  async (type) => {
    const order: string[] = [];
    const watch = (inner: Transport): Transport => ({
      ...inner,
      request: (request) => {
        const { method, path, body = "" } = request;
        const text = body.toString();
        if (method === "PATCH" && path.includes("/sandboxes/a") && text.includes(annotationKeys.suspendedAt))
          order.push("stamped");
        if (method === "PATCH" && path.includes("/sandboxes/a/status") && text.includes(`"rung":"${type}"`))
          order.push(text.includes("resourceVersion") ? "announced if unchanged" : "announced");
        return inner.request(request);
      },
      upgrade: (request) => inner.upgrade(request),
      close: () => inner.close(),
    });
    await using world = await openWorld({ suspensionStrategy: { type }, wakePolicy: "OnTraffic" }, watch);
    await patchSpec(world, { operatingMode: "Suspended" });
    expect(order).toEqual(["stamped", "announced if unchanged"]);
    expect((await reasonOf(world))[2]).toBe("suspending");
    await world.advance(1_000);
    await reportActivity(world);
    await world.settled();
    expect((await reasonOf(world))[2]).toBe("ready");
  },
);

test.each(["Freeze", "Hibernate"] as const)(
  "falling into deep sleep: activity reported before the announcement of %s keeps the Sandbox awake, and no wish is made",
  async (type) => {
    let world: World | undefined;
    let isDone = false;
    const disturb = (inner: Transport): Transport => ({
      ...inner,
      request: async (request) => {
        if (!isDone && isAnnouncement(request)) {
          isDone = true;
          await reportActivity(world as World);
        }
        return inner.request(request);
      },
      upgrade: (request) => inner.upgrade(request),
      close: () => inner.close(),
    });
    world = await openWorld(idle(type), disturb);
    await using opened = world;
    await opened.advance(61_000);
    expect(isDone).toBe(true);
    expect((await reasonOf(opened))[2]).toBe("ready");
    expect((await found(opened)).status?.sleep).toBeUndefined();
  },
);

test("falling into deep sleep: activity between the answer and the end of the Pod keeps the Pod", async () => {
  let world: World | undefined;
  let isDone = false;
  const disturb = (inner: Transport): Transport => ({
    ...inner,
    request: async (request) => {
      if (!isDone && isNote(request)) {
        isDone = true;
        await reportActivity(world as World);
      }
      return inner.request(request);
    },
    upgrade: (request) => inner.upgrade(request),
    close: () => inner.close(),
  });
  world = await openWorld(idle("Hibernate"), disturb);
  await using opened = world;
  await opened.advance(61_000);
  const uid = (await podOf(opened))?.metadata.uid;
  await answers(opened, "Saved");
  expect(isDone).toBe(true);
  expect(await reasonOf(opened)).toEqual(["NotSuspended", "DependenciesNotReady", "starting"]);
  await answers(opened, "Awake", "");
  expect((await reasonOf(opened))[2]).toBe("ready");
  expect((await podOf(opened))?.metadata.uid).toBe(uid);
});

test("falling into deep sleep: a frozen Sandbox hibernates after the second time of its policy", async () => {
  const autoSuspension = { inactivityTimeoutSeconds: 60, hibernateAfterSeconds: 300 };
  await using world = await openWorld({ autoSuspension, suspensionStrategy: { type: "Freeze" } });
  await world.advance(61_000);
  await answers(world, "Frozen");
  const first = (await found(world)).status?.sleep;
  await world.advance(238_000);
  expect((await reasonOf(world))[0]).toBe("PodFrozen");
  await world.advance(2_000);
  expect((await reasonOf(world))[0]).toBe("PodHibernating");
  const second = (await found(world)).status?.sleep;
  expect([first?.rung, second?.rung, second?.id === first?.id]).toEqual(["Freeze", "Hibernate", false]);
  await answers(world, "Saved");
  expect((await reasonOf(world))[2]).toBe("hibernated");
});

test("falling into deep sleep: where the node does not answer, nothing is asked and the condition names it", async () => {
  await using world = await World.open({ ground });
  await world.applied(sandboxes, sandbox("a", idle("Freeze")));
  await world.advance(61_000);
  expect(await reasonOf(world)).toEqual(["SuspensionStrategyNotAvailable", "DependenciesReady", "ready"]);
  expect(condition(await found(world), "Suspended")?.message).toMatch(/not available on node "node-\d"/);
  expect((await found(world)).status?.sleep).toBeUndefined();
});

test("falling into deep sleep: a hibernated Sandbox that expires and is given more time still has its memory", async () => {
  await using world = await openWorld(idle("Hibernate"));
  await world.advance(61_000);
  await answers(world, "Saved");
  const { sleep } = (await found(world)).status ?? {};
  await patchSpec(world, { shutdownTime: new Date(world.clock.nowMs()).toISOString() });
  await world.advance(1_000);
  expect(sandboxPhase(await found(world)).phase).toBe("expired");
  expect((await found(world)).status?.sleep).toEqual(sleep);
});

test.each([
  ["a second time that is not later", { type: "Freeze" }, 60, "must be greater than inactivityTimeoutSeconds"],
  ["another strategy", { type: "Hibernate" }, 300, "needs suspensionStrategy.type Freeze"],
  ["no strategy", undefined, 300, "needs suspensionStrategy.type Freeze"],
] as const)("falling into deep sleep: a policy is refused with %s", async (_title, strategy, seconds, message) => {
  await using world = await World.open({ ground });
  const autoSuspension = { inactivityTimeoutSeconds: 60, hibernateAfterSeconds: seconds };
  const spec = { autoSuspension, ...(strategy !== undefined && { suspensionStrategy: strategy }) };
  await expect(world.client.create(sandboxes, sandbox("a", spec))).rejects.toThrow(message);
  const blueprint = world.client.create(sandboxTemplates, template("t", spec));
  await expect(blueprint).rejects.toThrow(message);
});

const isAnnouncement = ({ method, path, body = "" }: KubeRequest): boolean =>
  method === "PATCH" && path.includes("/sandboxes/a/status") && body.toString().includes("SandboxSuspended");
const isNote = ({ method, path, body = "" }: KubeRequest): boolean =>
  method === "PATCH" && path.includes("/sandboxes/a/status") && body.toString().includes("savedAt");
const isPodDeletion = ({ method, path }: KubeRequest): boolean => method === "DELETE" && path.includes("/pods/a");

function preconditionsOf({ body = "" }: KubeRequest): string {
  const { preconditions = {} } = JSON.parse(body.toString()) as { preconditions?: object };
  return Object.keys(preconditions).sort().join(",");
}
