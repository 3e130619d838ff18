import { type PersistentVolume, type Pod, persistentVolumes, pods, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { expect, test } from "vitest";
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

async function createOwnedPod(world: NodeWorld, { metadata: { name, uid = "" } }: Sandbox): Promise<void> {
  const owner = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name, uid, controller: true };
  const pod: Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", ownerReferences: [owner] },
    spec: { nodeName: world.config.nodeName, ...template.spec },
  };
  await world.client.create(pods, pod);
}

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

test("node agent: a volume goes with its PersistentVolume, unless that says to retain it", async () => {
  await using world = await NodeWorld.start();
  for (const [name, policy] of [
    ["gone", "Delete"],
    ["kept", "Retain"],
  ] as const) {
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
  const { promise: deleted, resolve } = Promise.withResolvers<void>();
  const deleteVolume = world.fake.deleteVolume.bind(world.fake);
  world.fake.deleteVolume = (request) => deleteVolume(request).finally(resolve);
  for (const name of ["kept", "gone"]) await world.client.delete(persistentVolumes, { name });
  await deleted;
  expect((await world.fake.listVolumes()).map(({ id }) => id)).toEqual(["pvc-kept"]);
});
