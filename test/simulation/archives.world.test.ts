import type { Sandbox, SandboxArchive } from "@agent-sandbox/api";
import {
  ApiError,
  annotationKeys,
  archiveState,
  pods,
  sandboxArchives,
  sandboxes,
  sandboxSnapshots,
} from "@agent-sandbox/api";
import { FaultyTransport, seededRandom, type Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ArchiveNode } from "./archive-node.ts";
import { CrashTransport } from "./crash-transport.ts";
import { Ground } from "./ground.ts";
import { archive, condition, namespace, sandbox } from "./objects.ts";
import { SleepNode } from "./sleep-node.ts";
import { World } from "./world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

const box = { namespace, name: "box" };
const readBox = (): Sandbox | undefined => ground.read(sandboxes).find(({ metadata }) => metadata.name === "box");
const readArchive = (): SandboxArchive | undefined =>
  ground.read(sandboxArchives).find(({ metadata }) => metadata.name === "box");
const said = () => condition(readArchive(), "Ready")?.reason;

/** Lets controllers, cluster and node work until all rest. */
async function settled(world: World, node: ArchiveNode): Promise<void> {
  for (let round = 0; round < 60; round++) {
    await world.settled();
    if (!(await node.step())) return;
  }
  throw new Error("the world did not settle in 60 rounds");
}

/** A Sandbox that has run once and is stopped. */
async function asleep(world: World, node: ArchiveNode, spec: Partial<Sandbox["spec"]> = {}): Promise<void> {
  await world.applied(sandboxes, sandbox("box", spec));
  await settled(world, node);
  await setMode(world, "Suspended");
  await settled(world, node);
}

async function setMode(world: World, operatingMode: "Running" | "Suspended"): Promise<void> {
  await world.client.patch(sandboxes, box, { type: "merge", body: { spec: { operatingMode } } });
}

async function recall(world: World, isWanted = true): Promise<void> {
  await world.client.patch(sandboxArchives, box, { type: "merge", body: { spec: { recall: isWanted } } });
}

describe("Archives in a world", () => {
  test("archives: a stopped Sandbox leaves and comes back with its files, labels and spec, and nothing stays of its archive", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground });
    const spec = { suspensionStrategy: { type: "Stop" as const } };
    await world.client.create(sandboxes, { ...sandbox("box", spec), metadata: { ...box, labels: { team: "red" } } });
    await settled(world, node);
    await setMode(world, "Suspended");
    await settled(world, node);
    const before = readBox();
    await world.applied(sandboxArchives, archive("box"));
    await settled(world, node);
    expect(said()).toBe("Archived");
    expect(readBox()).toBeUndefined();
    expect(ground.read(sandboxSnapshots)).toEqual([]);
    expect(node.archive.ids).toEqual([readArchive()?.status?.archiveID]);
    expect(node.lost()).toEqual([]);
    await recall(world);
    await settled(world, node);
    expect(readBox()?.metadata).toMatchObject({ labels: { team: "red" } });
    expect(readBox()?.metadata.uid).not.toBe(before?.metadata.uid);
    expect(readBox()?.spec).toMatchObject(spec);
    expect(condition(readBox(), "Ready")?.status).toBe("True");
    expect(readArchive()).toBeUndefined();
    expect(node.archive.ids).toEqual([]);
    expect(ground.read(sandboxSnapshots)).toEqual([]);
    expect(node.lost()).toEqual([]);
  });

  test("archives: one that runs, or that a claim controls, is not touched, and the archive says why", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground });
    await world.applied(sandboxes, sandbox("box"));
    await world.applied(sandboxArchives, archive("box"));
    await settled(world, node);
    expect(said()).toBe("SandboxAwake");
    expect(condition(readBox(), "Ready")?.status).toBe("True");
    await setMode(world, "Suspended");
    await settled(world, node);
    expect(said()).toBe("Archived");
  });

  test("archives: without a configured archive nothing happens to the Sandbox", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground, hasArchive: false });
    await asleep(world, node);
    await world.applied(sandboxArchives, archive("box"));
    await settled(world, node);
    expect(said()).toBe("NoArchive");
    expect(readBox()).toBeDefined();
    expect(ground.read(sandboxSnapshots)).toEqual([]);
    node.hasArchive = true;
    await settled(world, node);
    expect(said()).toBe("Archived");
  });

  test("archives: a Sandbox that wakes while its content is stored stays, and the attempt is removed from the store", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground });
    await asleep(world, node);
    let isDown = true;
    node.archive.onCall = (call) => {
      if (call === "store" && isDown) throw new Error("the store does not answer");
    };
    await world.applied(sandboxArchives, archive("box"));
    for (let round = 0; round < 10 && said() !== "StoreFailed"; round++) {
      await node.step();
      await world.settled();
    }
    expect(said()).toBe("StoreFailed");
    isDown = false;
    await setMode(world, "Running");
    await settled(world, node);
    expect(condition(readBox(), "Ready")?.status).toBe("True");
    expect(said()).toBe("SandboxAwake");
    expect(node.archive.ids).toEqual([]);
    expect(node.lost()).toEqual([]);
    await setMode(world, "Suspended");
    await settled(world, node);
    expect(said()).toBe("Archived");
    expect(node.lost()).toEqual([]);
  });

  test("archives: activity in the moment before the Sandbox is deleted keeps it", async () => {
    let isArmed = true;
    const touching = (transport: Transport): Transport => ({
      ...transport,
      close: () => transport.close(),
      upgrade: (request) => transport.upgrade(request),
      request: async (request) => {
        if (isArmed && request.method === "DELETE" && request.path.includes("/sandboxes/")) {
          isArmed = false;
          const annotations = { [annotationKeys.lastActivityAt]: new Date(ground.clock.nowMs() + 1).toISOString() };
          await world.client.patch(sandboxes, box, { type: "merge", body: { metadata: { annotations } } });
        }
        return transport.request(request);
      },
    });
    const world = await World.open({ ground, disturb: touching });
    await using _world = world;
    const node = new ArchiveNode({ ground });
    await asleep(world, node, { wakePolicy: "OnTraffic" });
    const uid = readBox()?.metadata.uid;
    await world.applied(sandboxArchives, archive("box"));
    await settled(world, node);
    expect(isArmed).toBe(false);
    expect(readBox()?.metadata.uid).toBe(uid);
    expect(said()).toBe("SandboxAwake");
    expect(condition(readBox(), "Ready")?.status).toBe("True");
    expect(node.archive.ids).toEqual([]);
  });

  test("archives: deleting the object of an archived Sandbox removes its content, and before it has left calls it off", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground });
    await asleep(world, node);
    await world.applied(sandboxArchives, archive("box"));
    await node.step();
    await world.settled();
    await world.client.delete(sandboxArchives, box);
    await settled(world, node);
    expect(readArchive()).toBeUndefined();
    expect(readBox()).toBeDefined();
    expect(node.archive.ids).toEqual([]);
    await world.applied(sandboxArchives, archive("box"));
    await settled(world, node);
    expect(readBox()).toBeUndefined();
    await world.client.delete(sandboxArchives, box);
    await settled(world, node);
    expect(readArchive()).toBeUndefined();
    expect(node.archive.ids).toEqual([]);
  });

  test("archives: the name of one that left can be another Sandbox's, which stays; the archived one waits for it to go", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground });
    await asleep(world, node);
    await world.applied(sandboxArchives, archive("box"));
    await settled(world, node);
    const version = node.latest.get("box") ?? "";
    await world.applied(sandboxes, sandbox("box"));
    await recall(world);
    await settled(world, node);
    expect(said()).toBe("NameTaken");
    expect(readBox()?.spec.restoreFrom).toBeUndefined();
    expect(node.archive.contentOf(readArchive()?.status?.archiveID ?? "")).toBe(version);
    await world.client.delete(sandboxes, box);
    node.latest.set("box", version);
    await settled(world, node);
    expect(readBox()?.spec.restoreFrom).toBeDefined();
    expect(node.lost()).toEqual([]);
  });

  test("archives: after the loss of its object one is brought back by the id that the index has", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground });
    await asleep(world, node);
    await world.applied(sandboxArchives, archive("box"));
    await settled(world, node);
    const lost = readArchive();
    const archiveID = lost?.status?.archiveID ?? "";
    expect(await ground.write(sandboxArchives, lost as SandboxArchive, "delete")).toBe(true);
    await world.applied(sandboxArchives, { ...archive("other", { archiveID }) });
    await settled(world, node);
    const other = ground.read(sandboxArchives).find(({ metadata }) => metadata.name === "other");
    expect(condition(other, "Ready")?.reason).not.toBe("Archived");
    await world.applied(sandboxArchives, archive("box", { archiveID, recall: true }));
    await settled(world, node);
    expect(condition(readBox(), "Ready")?.status).toBe("True");
    expect(node.lost()).toEqual([]);
    expect(node.archive.ids).toEqual([]);
  });

  test("archives: archiveAfterSeconds archives what has slept so long, not earlier, and its object goes where the Sandbox wakes", async () => {
    await using world = await World.open({ ground });
    const node = new ArchiveNode({ ground });
    const autoSuspension = { inactivityTimeoutSeconds: 60, archiveAfterSeconds: 600 };
    await world.applied(sandboxes, sandbox("box", { autoSuspension }));
    await settled(world, node);
    await world.advance(70_000);
    await settled(world, node);
    expect(condition(readBox(), "Suspended")?.status).toBe("True");
    await world.advance(500_000);
    await settled(world, node);
    expect(readArchive()).toBeUndefined();
    await world.advance(60_000);
    await settled(world, node);
    expect(said()).toBe("Archived");
    expect(readBox()).toBeUndefined();
  });
});

/** Seeds of the normal run. */
const seeds = 60;

/** What users of one Sandbox do with it and its archive; losing a race is nothing. */
async function act(world: World, random: () => number): Promise<string> {
  const { client } = world;
  const merge = (body: object) => ({ type: "merge" as const, body });
  const annotations = { [annotationKeys.lastActivityAt]: new Date(world.clock.nowMs()).toISOString() };
  const deeds: [string, () => Promise<unknown>][] = [
    ["archive", () => client.create(sandboxArchives, archive("box"))],
    ["archive", () => client.create(sandboxArchives, archive("box"))],
    ["recall", () => recall(world)],
    ["forget", () => recall(world, false)],
    ["suspend", () => setMode(world, "Suspended")],
    ["suspend", () => setMode(world, "Suspended")],
    ["resume", () => setMode(world, "Running")],
    ["use", () => client.patch(sandboxes, box, merge({ metadata: { annotations } }))],
    ["label", () => client.patch(sandboxes, box, merge({ metadata: { labels: { at: String(random()) } } }))],
    ["call off", () => callOff(world)],
  ];
  const [name, deed] = deeds[Math.floor(random() * deeds.length)] ?? ["", async () => {}];
  await deed().catch((error: unknown) => {
    if (!(error instanceof ApiError) || error.status >= 500) throw error;
  });
  return name;
}

/** A user who deletes an archive whose Sandbox has left deletes its content: that is no loss, and is not done here. */
async function callOff(world: World): Promise<void> {
  const present = readArchive();
  if (present === undefined || archiveState(present).step === "left") return;
  const { resourceVersion = "" } = present.metadata;
  await world.client.delete(sandboxArchives, box, { resourceVersion });
}

/** An agent that is killed before its request is sent, or before it has the answer. */
function killedAt(transport: Transport, isKilled: () => boolean): Transport {
  return {
    close: () => transport.close(),
    upgrade: (request) => transport.upgrade(request),
    request: async (request) => {
      if (isKilled()) throw new Error("killed before the request");
      const answer = await transport.request(request);
      if (isKilled()) throw new Error("killed before the answer");
      return answer;
    },
  };
}

async function restart(world: World): Promise<void> {
  await world.stopControllers();
  world.startControllers();
}

async function simulateArchives(seed: number): Promise<void> {
  const random = seededRandom(seed);
  let isCalm = true;
  let crash: CrashTransport | undefined;
  const rates = () =>
    isCalm ? {} : { conflict: 0.08, serverError: 0.08, lostRequest: 0.06, lostAnswer: 0.08, eventDropped: 0.05 };
  const faulty = (transport: Transport): Transport =>
    new FaultyTransport({ transport, random, clock: ground.clock, rates, delayMaxMs: 500, onFault: () => {} });
  const disturb = (transport: Transport): Transport => {
    crash = new CrashTransport(transport, () => {});
    return faulty(crash);
  };
  await using world = await World.open({ seed, ground, disturb, isDead: () => crash?.isDead === true });
  world.cluster.node.sleeper = new SleepNode(random);
  world.cluster.node.sleeper.isCalm = true;
  const node = new ArchiveNode({
    ground,
    disturb: (transport) => killedAt(transport, () => !isCalm && random() < 0.1),
  });
  node.archive.onCall = () => {
    if (!isCalm && random() < 0.15) throw new Error("the store does not answer");
  };
  const strategy = random() < 0.5 ? ("Hibernate" as const) : ("Stop" as const);
  await world.client.create(
    sandboxes,
    sandbox("box", { suspensionStrategy: { type: strategy }, wakePolicy: "OnTraffic" }),
  );
  const story: string[] = [];
  isCalm = false;
  for (let index = 0; index < 14; index++) {
    story.push(await act(world, random));
    if (random() < 0.3 && crash !== undefined) {
      let writes = 1 + Math.floor(random() * 3);
      crash.plan = { at: () => --writes <= 0 };
    }
    for (let moves = Math.floor(random() * 4); moves > 0; moves--) {
      await world.rested(2);
      await world.cluster.step();
      await node.step();
      expect(node.lost(), `seed ${seed}: ${story.join(", ")}`).toEqual([]);
      expect(ground.read(pods).length, `seed ${seed}: ${story.join(", ")}`).toBeLessThanOrEqual(1);
    }
    await world.clock.advance(Math.floor(random() * 2_000), { quietTurns: 2 });
    if (crash?.isDead === true) await restart(world);
  }
  isCalm = true;
  if (crash?.isDead === true) await restart(world);
  else if (crash !== undefined) crash.plan = undefined;
  for (let round = 0; round < 6; round++) {
    await world.advance(70_000);
    await settled(world, node);
    // One that was put to sleep on its way back needs its archive until it has started.
    if (said() === "Recalling") await setMode(world, "Running");
  }
  const why = `seed ${seed}: ${story.join(", ")}: ${said()} ${condition(readArchive(), "Ready")?.message}`;
  expect(node.lost(), why).toEqual([]);
  const ids = node.archive.ids;
  const present = readArchive();
  expect(ids, why).toEqual(present === undefined || said() !== "Archived" ? [] : [present.status?.archiveID]);
  expect(readBox() === undefined, why).toBe(said() === "Archived");
  expect(ground.read(sandboxSnapshots), why).toEqual([]);
}

test(`archives: under ${seeds} seeds of faults and crashes the latest files are with the Sandbox or in the store, never nowhere`, {
  timeout: 300_000,
}, async () => {
  for (let seed = 1; seed <= seeds; seed++) await simulateArchives(seed);
});
