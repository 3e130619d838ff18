import { rm } from "node:fs/promises";
import { join } from "node:path";
import {
  findCondition,
  ignore,
  pods,
  restoreOf,
  type Sandbox,
  type SandboxSnapshot,
  sandboxes,
  sandboxSnapshots,
  snapshotState,
} from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import { isReady, NodeWorld } from "./node-world.ts";
import { createPodOf, createSandbox, startSandbox } from "./sleeping-sandbox.ts";

const key = (name: string): { namespace: string; name: string } => ({ namespace: "default", name });

/** Resolves with the first state of a snapshot that satisfies the condition, by watching. */
async function snapshotWhere(
  world: NodeWorld,
  name: string,
  condition: (snapshot: SandboxSnapshot) => boolean,
): Promise<SandboxSnapshot> {
  const stop = new AbortController();
  try {
    const select = { namespace: "default", fieldSelector: `metadata.name=${name}`, signal: stop.signal };
    for await (const event of world.client.watch(sandboxSnapshots, select))
      if ((event.type === "ADDED" || event.type === "MODIFIED") && condition(event.object)) return event.object;
  } finally {
    stop.abort();
  }
  throw new Error(`watch ended before snapshot ${name} got there`);
}

async function take(world: NodeWorld, name: string, spec: SandboxSnapshot["spec"]): Promise<SandboxSnapshot> {
  await world.client.create(sandboxSnapshots, {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { name, namespace: "default" },
    spec,
  } as SandboxSnapshot);
  return snapshotWhere(world, name, (one) => ["ready", "failed"].includes(snapshotState(one).state));
}

/** A Sandbox that names a snapshot, and its pod, as the controller makes them. */
async function startFrom(world: NodeWorld, name: string, snapshot: SandboxSnapshot): Promise<Sandbox> {
  const from = snapshot.metadata.name;
  const spec = { restoreFrom: { snapshotName: from } };
  const sandbox = await createSandbox(world, name, { spec });
  const body = { status: { restoredFrom: { name: from, uid: snapshot.metadata.uid } } };
  await world.client.patch(sandboxes, key(name), { type: "merge", body }, { subresource: "status" });
  await createPodOf(world, sandbox);
  return sandbox;
}

async function removePod(world: NodeWorld, name: string): Promise<void> {
  await world.client.delete(pods, key(name), { gracePeriodSeconds: 0 }).catch(ignore("NotFound"));
  await world.podGone(name);
}

async function removeSandbox(world: NodeWorld, name: string): Promise<void> {
  await world.client.delete(sandboxes, key(name));
  await removePod(world, name);
}

async function eventually(question: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 500 && !(await question()); tries += 1)
    await new Promise((resolve) => setTimeout(resolve, 10));
  expect(await question()).toBe(true);
}

const layersOf = async (world: NodeWorld): Promise<number> => (await world.fake.listWritableLayers()).length;

test("node snapshots: a child is restored under its own names, the source goes on, and nothing is left of a snapshot that was deleted", async () => {
  await using world = await NodeWorld.start();
  const source = await startSandbox(world, "box");
  const taken = await take(world, "point", { sandboxName: "box" });
  expect(snapshotState(taken).state).toBe("ready");
  expect(taken.status).toMatchObject({
    nodeName: world.config.nodeName,
    sandboxUID: source.metadata.uid,
    copy: "Copy",
    runtimeVersion: "fake-1",
    memorySizeBytes: 1 << 20,
  });
  expect(isReady(await world.getPod("box"))).toBe(true);
  await startFrom(world, "child", taken);
  const child = await world.podWhere("child", (pod) => isReady(pod) && restoreOf(pod)?.state === "restored");
  expect(child.status?.podIP).not.toBe((await world.getPod("box")).status?.podIP);
  expect(await layersOf(world)).toBe(3);
  await world.client.delete(sandboxSnapshots, key("point"));
  await eventually(async () => (await world.fake.listSaved()).length === 0 && (await layersOf(world)) === 2);
  expect(isReady(await world.getPod("child"))).toBe(true);
  for (const name of ["box", "child"]) await removeSandbox(world, name);
  await eventually(async () => (await layersOf(world)) === 0 && (await world.fake.listEmptyDirs()).length === 0);
});

test("node snapshots: a save that fails says why for good, and the source runs on", async () => {
  await using world = await NodeWorld.start();
  await startSandbox(world, "box");
  world.fake.saved.saveFails = new HostError("no-space", "the disk is short");
  const failed = await take(world, "point", { sandboxName: "box" });
  expect(snapshotState(failed)).toMatchObject({ state: "failed", message: "the disk is short" });
  world.fake.saved.saveFails = undefined;
  expect(await world.fake.listSaved()).toEqual([]);
  expect(await layersOf(world)).toBe(1);
  expect(isReady(await world.getPod("box"))).toBe(true);
});

test("node snapshots: a restore that fails keeps the snapshot, and the next pod begins with fresh files", async () => {
  await using world = await NodeWorld.start();
  await startSandbox(world, "box");
  const taken = await take(world, "point", { sandboxName: "box" });
  world.fake.saved.restoreFails = new HostError("restore-failed", "a page cannot be read");
  const child = await startFrom(world, "child", taken);
  const failed = await world.podWhere("child", ({ status }) => status?.phase === "Failed");
  expect(restoreOf(failed)).toEqual({ state: "failed", message: "a page cannot be read" });
  await removePod(world, "child");
  expect(await layersOf(world)).toBe(2);
  expect(await world.fake.listSaved()).toHaveLength(1);
  world.fake.saved.restoreFails = undefined;
  await createPodOf(world, child);
  await world.podWhere("child", (pod) => isReady(pod) && restoreOf(pod)?.state === "restored");
});

test("node snapshots: a Sandbox with a layer of its own, or whose status names no snapshot, is given nothing of one", async () => {
  await using world = await NodeWorld.start();
  await startSandbox(world, "box");
  const taken = await take(world, "point", { sandboxName: "box" });
  const child = await startFrom(world, "child", taken);
  await world.podWhere("child", (pod) => isReady(pod) && restoreOf(pod)?.state === "restored");
  await removePod(world, "child");
  await createPodOf(world, child);
  expect(restoreOf(await world.podWhere("child", isReady))).toBeUndefined();
  // What a user writes into the spec is a name; the node goes by what the controller has made of it.
  await createPodOf(world, await createSandbox(world, "other", { spec: { restoreFrom: { snapshotName: "point" } } }));
  expect(restoreOf(await world.podWhere("other", isReady))).toBeUndefined();
});

/** Lets a Sandbox go back to a snapshot of its own, as the controller does. */
async function goBack(
  world: NodeWorld,
  sandbox: Sandbox,
  snapshot: SandboxSnapshot,
): Promise<{ readonly ran: () => Promise<unknown> }> {
  const { name, uid } = snapshot.metadata;
  const restart = { name, uid, generation: 1 };
  const target = key(sandbox.metadata.name);
  const patch = (status: object) =>
    world.client.patch(sandboxes, target, { type: "merge", body: { status } }, { subresource: "status" });
  await patch({ restart });
  await createPodOf(world, sandbox);
  return { ran: () => patch({ restart: null, restoredFrom: { ...restart, startedAt: "2026-01-01T00:00:00Z" } }) };
}

test("node snapshots: a Sandbox that goes back keeps its files until it runs from the snapshot", async () => {
  await using world = await NodeWorld.start();
  const box = await startSandbox(world, "box");
  const keys = async (): Promise<string[]> => (await world.fake.listWritableLayers()).map(({ key: one }) => one).sort();
  const before = await keys();
  const taken = await take(world, "point", { sandboxName: "box" });
  const withSnapshot = await keys();
  await removePod(world, "box");
  world.fake.saved.restoreFails = new HostError("restore-failed", "a page cannot be read");
  await goBack(world, box, taken);
  const failed = await world.podWhere("box", ({ status }) => status?.phase === "Failed");
  expect(findCondition(failed.status?.conditions, "PodRestored")).toMatchObject({ status: "False" });
  await removePod(world, "box");
  // What was cloned is gone, and what there was is there.
  expect(await keys()).toEqual(withSnapshot);
  world.fake.saved.restoreFails = undefined;
  const { ran } = await goBack(world, box, taken);
  const pod = await world.podWhere("box", (one) => isReady(one) && restoreOf(one)?.state === "restored");
  expect(findCondition(pod.status?.conditions, "PodRestored")).toMatchObject({
    status: "True",
    message: expect.stringContaining("point"),
  });
  expect(await keys()).toHaveLength(3);
  await ran();
  await eventually(async () => (await keys()).length === 2);
  expect(await keys()).not.toContain(before[0]);
  await removePod(world, "box");
  await createPodOf(world, box);
  expect(restoreOf(await world.podWhere("box", isReady))).toBeUndefined();
  expect(await keys()).toHaveLength(2);
});

test("node snapshots: what is not on this node, or of other containers, is refused with the reason", async () => {
  await using world = await NodeWorld.start();
  await startSandbox(world, "box");
  const taken = await take(world, "point", { sandboxName: "box" });
  const elsewhere = { ...taken, metadata: { ...taken.metadata, uid: "11111111-2222-3333-4444-555555555555" } };
  await startFrom(world, "lost", elsewhere);
  const lost = await world.podWhere("lost", (pod) => restoreOf(pod)?.state === "failed");
  expect(restoreOf(lost)).toMatchObject({ message: expect.stringContaining("not on this node") });
  const containers = [{ name: "another", image: "host", command: ["sleep", "1d"] }];
  const sandbox = await createSandbox(world, "differs", { spec: { podTemplate: { spec: { containers } } } });
  const body = { status: { restoredFrom: { name: "point", uid: taken.metadata.uid } } };
  await world.client.patch(sandboxes, key("differs"), { type: "merge", body }, { subresource: "status" });
  await createPodOf(world, sandbox);
  const differs = await world.podWhere("differs", (pod) => restoreOf(pod)?.state === "failed");
  expect(restoreOf(differs)).toMatchObject({ message: expect.stringContaining("and the Pod has another") });
});

test("node snapshots: an agent that comes back while one is taken lets the sandbox go on, and takes it again", async () => {
  await using world = await NodeWorld.start();
  await startSandbox(world, "box");
  // The helper answers the save, and the agent is gone before it does anything with the answer.
  let isPaused = (): void => undefined;
  const paused = new Promise<void>((resolve) => {
    isPaused = resolve;
  });
  const cloneImage = world.fake.cloneImage.bind(world.fake);
  world.fake.cloneImage = () => {
    isPaused();
    return new Promise(() => undefined);
  };
  const ending = take(world, "point", { sandboxName: "box" });
  await paused;
  expect(await world.fake.listSaved()).toHaveLength(1);
  world.fake.cloneImage = cloneImage;
  void world.agent?.stop();
  await world.startAgent();
  expect(snapshotState(await ending).state).toBe("ready");
  const [root] = await world.fake.listContainers();
  expect(world.fake.saved.isPaused(root?.sandboxId ?? "")).toBe(false);
});

test("node snapshots: what no record names any more goes when an agent starts, and volumes of claims stay", async () => {
  await using world = await NodeWorld.start();
  await startSandbox(world, "box");
  const { metadata } = await take(world, "point", { sandboxName: "box" });
  for (const id of ["snap-none", "pvc-none"]) await world.fake.ensureVolume({ id, sizeBytes: 1 << 20 });
  await world.agent?.stop();
  await rm(join(world.dataDir, "snapshots", metadata.uid ?? ""), { recursive: true });
  await world.startAgent();
  expect((await world.fake.listVolumes()).map(({ id }) => id)).toEqual(["pvc-none"]);
  expect(await world.fake.listSaved()).toEqual([]);
  expect(await layersOf(world)).toBe(1);
});
