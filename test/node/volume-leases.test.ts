import {
  events,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  type Sandbox,
  type SleepWish,
  sandboxes,
  sleepAnswerOf,
} from "@agent-sandbox/api";
import { expect, test, vi } from "vitest";
import { isReady, NodeWorld } from "./node-world.ts";
import { createPodOf, nameWish } from "./sleeping-sandbox.ts";

const hibernate: SleepWish = { id: "1", rung: "Hibernate" };
const asleep: SleepWish = { ...hibernate, savedAt: "2026-01-01T00:00:00Z", savedBytes: 1 << 20 };

/** A claim that is bound to a volume of this node. */
async function bindClaim(world: NodeWorld, name: string): Promise<void> {
  const spec = { accessModes: ["ReadWriteMany"], resources: { requests: { storage: "1Mi" } }, volumeName: name };
  const claim = { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name, namespace: "default" }, spec };
  const { metadata } = await world.client.create(persistentVolumeClaims, claim as PersistentVolumeClaim);
  const claimRef = { namespace: "default", name, uid: metadata.uid };
  const csi = { driver: "agent-sandbox.dev/local", volumeHandle: name };
  const volume = { capacity: { storage: "1Mi" }, accessModes: spec.accessModes, claimRef, csi };
  const object = { apiVersion: "v1", kind: "PersistentVolume", metadata: { name }, spec: volume };
  await world.client.create(persistentVolumes, object as PersistentVolume);
  const body = { status: { phase: "Bound", capacity: { storage: "1Mi" } } };
  const key = { namespace: "default", name };
  await world.client.patch(persistentVolumeClaims, key, { type: "merge", body }, { subresource: "status" });
}

/** A Sandbox whose pod names the claim. */
async function startWithClaim(world: NodeWorld, name: string, claimName: string): Promise<Sandbox> {
  const containers = [
    {
      name: "main",
      image: "host",
      command: ["sleep", "1d"],
      volumeMounts: [{ name: "data", mountPath: "/data" }],
    },
  ];
  const volumes = [{ name: "data", persistentVolumeClaim: { claimName } }];
  const metadata = { namespace: "default", name };
  const sandbox = await world.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata,
    spec: { podTemplate: { spec: { containers, volumes } } },
  } as Sandbox);
  await createPodOf(world, sandbox);
  return sandbox;
}

/** Resolves when a pod has said why it waits. */
async function waitsForVolume(world: NodeWorld, name: string, sandbox: string): Promise<void> {
  await vi.waitUntil(async () => {
    const { items } = await world.client.list(events, { namespace: "default" });
    const own = items.filter(({ regarding, reason }) => regarding?.name === name && reason === "FailedMount");
    return own.some(({ note }) => note?.includes(`kept as it is for Sandbox "${sandbox}"`) === true);
  }, 15_000);
  expect((await world.getPod(name)).status?.phase).toBe("Pending");
}

test("volume leases: a volume of a hibernated Sandbox is nobody else's until that runs again or is gone", async () => {
  await using world = await NodeWorld.start();
  await bindClaim(world, "shared");
  const first = await startWithClaim(world, "first", "shared");
  await world.podWhere("first", isReady);
  await nameWish(world, first, hibernate);
  await world.podWhere("first", (pod) => sleepAnswerOf(pod)?.reason === "Saved");
  await startWithClaim(world, "second", "shared");
  await waitsForVolume(world, "second", "first");
  await nameWish(world, first, asleep);
  await world.client.delete(pods, { namespace: "default", name: "first" });
  await world.podGone("first");
  await world.agent?.stop();
  await world.startAgent();
  await startWithClaim(world, "third", "shared");
  await waitsForVolume(world, "third", "first");
  await createPodOf(world, first);
  await world.podWhere("first", isReady);
  await nameWish(world, first, null);
  for (const name of ["second", "third"]) await world.podWhere(name, isReady);
});

test("volume leases: a Sandbox whose volume another pod uses is not hibernated, and says whose that is", async () => {
  await using world = await NodeWorld.start();
  await bindClaim(world, "shared");
  const first = await startWithClaim(world, "first", "shared");
  await startWithClaim(world, "second", "shared");
  for (const name of ["first", "second"]) await world.podWhere(name, isReady);
  await nameWish(world, first, hibernate);
  const refused = await world.podWhere("first", (pod) => sleepAnswerOf(pod)?.reason === "SleepFailed");
  expect(sleepAnswerOf(refused)?.message).toContain("pod second uses a volume of it");
  expect(await world.fake.listSaved()).toEqual([]);
  await world.client.delete(pods, { namespace: "default", name: "second" }, { gracePeriodSeconds: 0 });
  await world.podWhere("first", (pod) => sleepAnswerOf(pod)?.reason === "Saved");
});
