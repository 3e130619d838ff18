import {
  namespaces,
  type PersistentVolume,
  type Pod,
  persistentVolumes,
  pods,
  type Sandbox,
  sandboxes,
} from "@agent-sandbox/api";
import { expect, test, vi } from "vitest";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import { isReady, NodeWorld } from "./node-world.ts";

const template = { spec: { containers: [{ name: "main", image: "host", command: ["sleep", "1d"] }] } };

async function createSandbox(world: NodeWorld, name: string): Promise<Sandbox> {
  const metadata = { name, namespace: "default", annotations: { "agent-sandbox.dev/address": "10.200.0.77" } };
  return world.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata,
    spec: { podTemplate: template },
  } as Sandbox);
}

/** A pod that says it is the Sandbox's, as anybody who may create pods can write it. */
async function createForgedPod(
  world: NodeWorld,
  sandbox: Sandbox,
  { name = sandbox.metadata.name, namespace = "default" } = {},
): Promise<Pod> {
  const { name: ownerName, uid = "" } = sandbox.metadata;
  const owner = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name: ownerName, uid, controller: true };
  const pod: Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace, ownerReferences: [owner] },
    spec: { nodeName: world.config.nodeName, ...template.spec },
  };
  return world.client.create(pods, pod);
}

/** Names a pod in the Sandbox's status, as its controller does. */
async function namePod(world: NodeWorld, { metadata: { name } }: Sandbox, pod: Pod): Promise<void> {
  const body = { status: { podUID: pod.metadata.uid } };
  await world.client.patch(
    sandboxes,
    { namespace: "default", name },
    { type: "merge", body },
    { subresource: "status" },
  );
}

async function createOwnedPod(world: NodeWorld, sandbox: Sandbox): Promise<void> {
  await namePod(world, sandbox, await createForgedPod(world, sandbox));
}

const waitsForOwner = (pod: Pod): boolean =>
  pod.status?.containerStatuses?.[0]?.state?.waiting?.reason === "OwnerNotProven";

const layerKeys = async (world: NodeWorld): Promise<string[]> =>
  (await world.fake.listWritableLayers()).map(({ key }) => key);

test("node agent: a Sandbox's pod has the Sandbox's address, and keeps its writable layer over a suspension", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await createSandbox(world, "box");
  await createOwnedPod(world, sandbox);
  expect((await world.podWhere("box", isReady)).status?.podIP).toBe("10.200.0.77");
  const [layer] = await world.fake.listWritableLayers();
  await world.client.delete(pods, { namespace: "default", name: "box" }, { gracePeriodSeconds: 1 });
  await world.podGone("box");
  expect((await world.fake.listWritableLayers()).map(({ key }) => key)).toEqual([layer?.key]);
  await createOwnedPod(world, sandbox);
  expect((await world.podWhere("box", isReady)).status?.podIP).toBe("10.200.0.77");
});

test("node agent: a pod that its Sandbox does not name gets neither the Sandbox's layer nor its address", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await createSandbox(world, "box");
  await createOwnedPod(world, sandbox);
  await world.podWhere("box", isReady);
  const before = await layerKeys(world);
  await createForgedPod(world, sandbox, { name: "thief" });
  const thief = await world.podWhere("thief", waitsForOwner);
  expect(thief.status).toMatchObject({ phase: "Pending" });
  expect(thief.status?.podIP).toBeUndefined();
  expect(await layerKeys(world)).toEqual(before);
  expect((await world.fake.listRootfs()).filter(({ keepKey }) => keepKey !== undefined)).toHaveLength(1);
});

test("node agent: a pod of another namespace has no Sandbox here, whatever uid it names", async () => {
  await using world = await NodeWorld.start();
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "tenant-b" } };
  await world.client.create(namespaces, namespace);
  const sandbox = await createSandbox(world, "box");
  await createOwnedPod(world, sandbox);
  await world.podWhere("box", isReady);
  const thief = await createForgedPod(world, sandbox, { namespace: "tenant-b" });
  // Even named it would be of another namespace.
  await namePod(world, sandbox, thief);
  await expect
    .poll(async () => waitsForOwner(await world.client.get(pods, { namespace: "tenant-b", name: "box" })), {
      timeout: 10_000,
    })
    .toBe(true);
  expect((await world.fake.listRootfs()).filter(({ keepKey }) => keepKey !== undefined)).toHaveLength(1);
});

test("node agent: a pod that waits to be named starts as soon as it is", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await createSandbox(world, "box");
  const pod = await createForgedPod(world, sandbox);
  await world.podWhere("box", waitsForOwner);
  await namePod(world, sandbox, pod);
  expect((await world.podWhere("box", isReady)).status?.podIP).toBe("10.200.0.77");
});

test("node agent: an address that two Sandboxes say is theirs is nobody's", async () => {
  await using world = await NodeWorld.start();
  const victim = await createSandbox(world, "box");
  await createOwnedPod(world, victim);
  await world.podWhere("box", isReady);
  await createOwnedPod(world, await createSandbox(world, "thief"));
  expect((await world.podWhere("thief", isReady)).status?.podIP).not.toBe("10.200.0.77");
});

/** A volume on the host, and its object. */
async function createVolume(world: NodeWorld, name: string, policy = "Delete"): Promise<void> {
  await world.fake.ensureVolume({ id: `pvc-${name}`, sizeBytes: 2 ** 20 });
  const claimRef = { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace: "default", name, uid: name };
  const spec = {
    capacity: { storage: "1Mi" },
    accessModes: ["ReadWriteOnce"],
    claimRef,
    persistentVolumeReclaimPolicy: policy,
    csi: { driver: "agent-sandbox.dev/local", volumeHandle: name },
  };
  const volume: PersistentVolume = { apiVersion: "v1", kind: "PersistentVolume", metadata: { name }, spec };
  await world.client.create(persistentVolumes, volume);
}

test("node agent: a volume goes with its PersistentVolume, unless that says to retain it", async () => {
  await using world = await NodeWorld.start();
  await createVolume(world, "gone");
  await createVolume(world, "kept", "Retain");
  const { promise: deleted, resolve } = Promise.withResolvers<void>();
  const deleteVolume = world.fake.deleteVolume.bind(world.fake);
  world.fake.deleteVolume = (request) => deleteVolume(request).finally(resolve);
  for (const name of ["kept", "gone"]) await world.client.delete(persistentVolumes, { name });
  await deleted;
  expect((await world.fake.listVolumes()).map(({ id }) => id)).toEqual(["pvc-kept"]);
});

test("node agent: a volume that a container has not let go of is tried again, also by the agent after a killed one", async () => {
  await using world = await NodeWorld.start();
  await createVolume(world, "held");
  const deleteVolume = world.fake.deleteVolume.bind(world.fake);
  const { promise: refused, resolve } = Promise.withResolvers<void>();
  world.fake.deleteVolume = async () => {
    resolve();
    throw new HostError("busy", "is in use");
  };
  await world.client.delete(persistentVolumes, { name: "held" });
  await refused;
  await world.agent?.stop();
  world.fake.deleteVolume = deleteVolume;
  await world.startAgent();
  await vi.waitUntil(async () => (await world.fake.listVolumes()).length === 0);
});
