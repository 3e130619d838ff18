import type { Pod, Sandbox, SandboxSnapshot, SnapshotReason } from "@agent-sandbox/api";
import {
  annotationKeys,
  keyOf,
  pods,
  restoredCondition,
  sandboxes,
  sandboxSnapshots,
  sandboxTemplates,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { actionOf } from "./logging-transport.ts";
import { condition, namespace, pool, sandbox, snapshot, template } from "./objects.ts";
import { World } from "./world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

const at = (name: string) => ({ namespace, name });
const read = (name: string): Sandbox | undefined =>
  ground.read(sandboxes).find(({ metadata }) => metadata.name === name);
const ready = (name: string) => condition(read(name), "Ready");
const child = (name: string): Sandbox => sandbox(name, { restoreFrom: { snapshotName: "snap" } });

/** Plays the node: takes a snapshot on, and ends it with this reason. */
async function save(
  world: World,
  name = "snap",
  reason: SnapshotReason & ("SnapshotReady" | "SnapshotFailed") = "SnapshotReady",
  sandboxUID = "uid-of-the-source",
): Promise<void> {
  const status: SandboxSnapshot["status"] = {
    nodeName: "node-1",
    sandboxUID,
    conditions: [
      {
        type: "Ready",
        status: reason === "SnapshotReady" ? "True" : "False",
        reason,
        message: "words of the node",
        lastTransitionTime: new Date(world.clock.nowMs()).toISOString(),
      },
    ],
  };
  const patch = { type: "merge" as const, body: { status } };
  await world.client.patch(sandboxSnapshots, at(name), patch, { subresource: "status" });
  await world.settled();
}

/** Plays the node: says on the Pod what became of its start from saved memory. */
async function tell(world: World, name: string, verdict: { status: "True" | "False"; reason: string }): Promise<void> {
  const pod = await world.client.get(pods, at(name));
  const own = { type: restoredCondition, message: "words of the node", ...verdict };
  const conditions: NonNullable<Pod["status"]>["conditions"] = [...(pod.status?.conditions ?? []), own];
  const patch = { type: "merge" as const, body: { status: { ...pod.status, phase: "Pending", conditions } } };
  await world.client.patch(pods, at(name), patch, { subresource: "status" });
  await world.rested();
}

describe("Snapshots in a world", () => {
  test("snapshots: one says why it waits, until a node has it", async () => {
    await using world = await World.open({ ground });
    const told = () => condition(ground.read(sandboxSnapshots)[0], "Ready");
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    expect(told()).toMatchObject({ status: "False", reason: "SandboxNotFound" });
    await world.applied(sandboxes, sandbox("source"));
    expect(told()).toMatchObject({ status: "False", reason: "SnapshotsNotAvailable" });
    await save(world);
    await world.client.delete(sandboxes, at("source"));
    await world.settled();
    expect(told()).toMatchObject({ status: "True", reason: "SnapshotReady" });
  });

  test("snapshots: one is deleted when its time is up, and not before", async () => {
    await using world = await World.open({ ground });
    await world.applied(sandboxSnapshots, snapshot("snap", "source", { ttlSecondsAfterCreation: 60 }));
    await world.applied(sandboxSnapshots, snapshot("kept", "source"));
    await world.advance(58_000);
    expect(ground.read(sandboxSnapshots)).toHaveLength(2);
    await world.advance(3_000);
    expect(ground.read(sandboxSnapshots).map(({ metadata }) => metadata.name)).toEqual(["kept"]);
  });

  test("snapshots: a node that has one keeps it, and what it was taken of", async () => {
    await using world = await World.open({ ground });
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await save(world);
    const write = (status: object) =>
      world.client.patch(sandboxSnapshots, at("snap"), { type: "merge", body: { status } }, { subresource: "status" });
    await expect(write({ nodeName: "node-2" })).rejects.toThrow(/nodeName is immutable/);
    await expect(write({ nodeName: null })).rejects.toThrow(/nodeName is immutable/);
    await expect(write({ sandboxUID: "another" })).rejects.toThrow(/sandboxUID is immutable/);
  });
});

describe("A start from a snapshot in a world", () => {
  test("restoreFrom: waits for the snapshot, names it, then makes the Pod, and needs the snapshot no more", async () => {
    await using world = await World.open({ ground });
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await world.applied(sandboxes, child("a"));
    expect(ready("a")).toMatchObject({
      status: "False",
      reason: "SandboxRestoring",
      message: expect.stringContaining('SandboxSnapshot "snap"'),
    });
    expect(ground.read(pods)).toEqual([]);
    world.writes.length = 0;
    await save(world);
    const writes = world.writes.map(actionOf).filter((action) => action !== "create events");
    expect(writes.indexOf("patch sandboxes/status")).toBeLessThan(writes.indexOf("create pods"));
    const [taken] = ground.read(sandboxSnapshots);
    expect(read("a")?.status?.restoredFrom).toEqual({
      name: "snap",
      uid: taken?.metadata.uid,
      startedAt: expect.any(String),
    });
    expect(ready("a")).toMatchObject({ status: "True" });
    await world.client.delete(sandboxSnapshots, at("snap"));
    await world.client.patch(sandboxes, at("a"), { type: "merge", body: { spec: { operatingMode: "Suspended" } } });
    await world.settled();
    expect(ground.read(pods)).toEqual([]);
    await world.client.patch(sandboxes, at("a"), { type: "merge", body: { spec: { operatingMode: "Running" } } });
    await world.settled();
    expect(ready("a")).toMatchObject({ status: "True" });
  });

  test("restoreFrom: a snapshot that is missing, or failed, is said, and one that comes later is used", async () => {
    await using world = await World.open({ ground });
    await world.applied(sandboxes, child("a"));
    expect(ready("a")).toMatchObject({ status: "False", reason: "RestoreFailed" });
    expect(ready("a")?.message).toContain('no SandboxSnapshot "snap"');
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    expect(ready("a")).toMatchObject({ reason: "SandboxRestoring" });
    await save(world, "snap", "SnapshotFailed");
    expect(ready("a")).toMatchObject({
      reason: "RestoreFailed",
      message: expect.stringContaining("words of the node"),
    });
    expect(ground.read(pods)).toEqual([]);
    await world.client.delete(sandboxSnapshots, at("snap"));
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await save(world);
    expect(ready("a")).toMatchObject({ status: "True" });
  });

  test("restoreFrom: a snapshot that was named and goes before the first start is not replaced by its namesake", async () => {
    await using world = await World.open({ ground });
    world.cluster.node.frozen = true;
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await world.applied(sandboxes, child("a"));
    await save(world);
    const uid = read("a")?.status?.restoredFrom?.uid;
    expect(uid).toBeDefined();
    await world.client.delete(sandboxSnapshots, at("snap"));
    await world.client.delete(pods, at("a"), { gracePeriodSeconds: 0 });
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await save(world);
    await world.settled();
    expect(ready("a")).toMatchObject({
      reason: "RestoreFailed",
      message: expect.stringContaining("was deleted before"),
    });
    expect(read("a")?.status?.restoredFrom).toEqual({ name: "snap", uid });
    expect(ground.read(pods)).toEqual([]);
  });

  test("restoreFrom: a Pod that could not be restored goes, its reason stays, and suspending tries again", async () => {
    await using world = await World.open({ ground });
    world.cluster.node.unready = () => true;
    world.cluster.node.frozen = true;
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await world.applied(sandboxes, child("a"));
    await save(world);
    await tell(world, "a", { status: "False", reason: "RestoreFailed" });
    world.cluster.node.frozen = false;
    await world.settled();
    expect(ready("a")).toMatchObject({ status: "False", reason: "RestoreFailed", message: "words of the node" });
    expect(ground.read(pods)).toEqual([]);
    await world.advance(600_000);
    expect(ground.read(pods)).toEqual([]);
    world.cluster.node.unready = () => false;
    for (const operatingMode of ["Suspended", "Running"]) {
      await world.client.patch(sandboxes, at("a"), { type: "merge", body: { spec: { operatingMode } } });
      await world.settled();
    }
    expect(ready("a")).toMatchObject({ status: "True" });
  });

  test("restart: a woken Sandbox goes back to its own snapshot once for each wake, across controllers that die, and keeps its files where it may not", async () => {
    await using world = await World.open({ ground });
    await world.applied(sandboxes, sandbox("a"));
    await world.applied(sandboxSnapshots, snapshot("snap", "a"));
    await save(world, "snap", "SnapshotReady", read("a")?.metadata.uid);
    const suspend = async (operatingMode: "Suspended" | "Running"): Promise<void> => {
      await world.client.patch(sandboxes, at("a"), { type: "merge", body: { spec: { operatingMode } } });
      await world.settled();
    };
    const wish = (name: string | null) =>
      world.client.patch(sandboxes, at("a"), {
        type: "merge",
        body: { metadata: { annotations: { [annotationKeys.restartFrom]: name } } },
      });
    await wish("snap");
    await suspend("Suspended");
    expect(read("a")?.status).not.toHaveProperty("restart");
    world.cluster.node.frozen = true;
    await suspend("Running");
    expect(read("a")?.status?.restart).toMatchObject({ name: "snap", generation: 1 });
    await world.stopControllers();
    world.startControllers();
    await world.settled();
    expect(read("a")?.status?.restart).toMatchObject({ generation: 1 });
    world.cluster.node.frozen = false;
    await world.settled();
    expect(ready("a")).toMatchObject({ status: "True" });
    expect(read("a")?.status).not.toHaveProperty("restart");
    expect(read("a")?.status?.restoredFrom).toMatchObject({ generation: 1, startedAt: expect.any(String) });

    await suspend("Suspended");
    await suspend("Running");
    expect(read("a")?.status?.restoredFrom).toMatchObject({ generation: 2 });
    await wish(null);
    await suspend("Suspended");
    await suspend("Running");
    expect(read("a")?.status?.restoredFrom).toMatchObject({ generation: 2 });
    expect(ready("a")).toMatchObject({ status: "True" });
  });

  test("restoreFrom: cannot be changed, added or removed", async () => {
    await using world = await World.open({ ground });
    await world.client.create(sandboxes, child("a"));
    await world.client.create(sandboxes, sandbox("b"));
    const edit = (name: string, restoreFrom: object | null) =>
      world.client.patch(sandboxes, at(name), { type: "merge", body: { spec: { restoreFrom } } });
    await expect(edit("a", { snapshotName: "other" })).rejects.toThrow(/restoreFrom is immutable/);
    await expect(edit("a", null)).rejects.toThrow(/restoreFrom is immutable/);
    await expect(edit("b", { snapshotName: "snap" })).rejects.toThrow(/restoreFrom is immutable/);
  });

  test("restoreFrom: members of a pool start from the snapshot of its template", async () => {
    await using world = await World.open({ ground });
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await world.applied(sandboxTemplates, template("tpl", { restoreFrom: { snapshotName: "snap" } }));
    await world.applied(sandboxWarmPools, pool("pool", 2));
    expect(ground.read(sandboxes)).toHaveLength(2);
    expect(ground.read(pods)).toEqual([]);
    await save(world);
    const [taken] = ground.read(sandboxSnapshots);
    const members = ground.read(sandboxes);
    expect(members.map(({ status }) => status?.restoredFrom?.uid)).toEqual([taken?.metadata.uid, taken?.metadata.uid]);
    expect(members.map((member) => condition(member, "Ready")?.status)).toEqual(["True", "True"]);
    expect(new Set(members.map(keyOf)).size).toBe(2);
  });

  test("restoreFrom: a controller that dies before the Pod is named makes another", async () => {
    await using world = await World.open({ ground });
    world.cluster.node.frozen = true;
    await world.applied(sandboxSnapshots, snapshot("snap", "source"));
    await world.applied(sandboxes, child("a"));
    await save(world);
    const [first] = ground.read(pods);
    await world.stopControllers();
    const { podUID: _podUid, ...status } = read("a")?.status ?? {};
    await ground.write(sandboxes, read("a") as Sandbox, { status });
    world.startControllers();
    await world.settled();
    world.cluster.node.frozen = false;
    await world.settled();
    const [second] = ground.read(pods);
    expect(second?.metadata.uid).not.toBe(first?.metadata.uid);
    expect(read("a")?.status).toMatchObject({ podUID: second?.metadata.uid });
    expect(ready("a")).toMatchObject({ status: "True" });
  });
});
