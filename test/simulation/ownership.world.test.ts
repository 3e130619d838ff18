import type { OwnerReference, Pod, Sandbox } from "@agent-sandbox/api";
import {
  customResourceDefinitions,
  internalError,
  labelKeys,
  nameHash,
  namespaces,
  pods,
  sandboxes,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { Interceptor } from "./interceptor.ts";
import { actionOf } from "./logging-transport.ts";
import { condition, namespace, sandbox } from "./objects.ts";
import { World } from "./world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

async function open(): Promise<{ world: World; wire: Interceptor } & AsyncDisposable> {
  const wire = new Interceptor();
  const world = await World.open({ ground, disturb: wire.wrap });
  return { world, wire, [Symbol.asyncDispose]: () => world[Symbol.asyncDispose]() };
}

const victim = (): Sandbox => ground.read(sandboxes).find(({ metadata }) => metadata.name === "a") as Sandbox;
const podNamed = (name: string): Pod | undefined => ground.read(pods).find(({ metadata }) => metadata.name === name);
const edit = (world: World, spec: object) =>
  world.client.patch(sandboxes, { namespace, name: "a" }, { type: "merge", body: { spec } });

/** What a tenant who may create Pods can write: a reference to a Sandbox that is not theirs. */
function forged(name: string, where: string): Pod {
  const { uid = "" } = victim().metadata;
  const owner: OwnerReference = {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    name: "a",
    uid,
    controller: true,
  };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      namespace: where,
      labels: { [labelKeys.sandboxNameHash]: nameHash("a") },
      ownerReferences: [owner],
    },
    spec: { containers: [{ name: "main", image: "i" }] },
  };
}

async function foreignNamespace(world: World): Promise<string> {
  await world.client.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: "tenant-b" } });
  return "tenant-b";
}

describe("Forged references in a world", () => {
  test("ownership: a forged Pod of another namespace does not make its victim MultiplePods", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    const own = victim().status;
    await world.client.create(pods, forged("thief", await foreignNamespace(world)));
    await world.advance(5_000);
    await edit(world, { shutdownTime: "2100-01-01T00:00:00Z" });
    await world.advance(5_000);
    expect(condition(victim(), "Ready")?.status).toBe("True");
    expect(victim().status?.podIPs).toEqual(own?.podIPs);
  });

  test("ownership: a forged Pod of another namespace does not become the Pod of a suspended victim", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await edit(world, { operatingMode: "Suspended" });
    await world.settled();
    await world.client.create(pods, forged("thief", await foreignNamespace(world)));
    await world.advance(5_000);
    expect(victim().status?.podIPs).toBeUndefined();
    await edit(world, { operatingMode: "Running" });
    await world.advance(5_000);
    const own = podNamed("a");
    expect(condition(victim(), "Ready")?.status).toBe("True");
    expect(victim().status?.podIPs).toEqual(own?.status?.podIPs?.map(({ ip }) => ip));
    expect(podNamed("thief")).toBeDefined();
  });

  test("ownership: a forged Pod beside the named one changes nothing", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    const before = victim().status;
    await world.client.create(pods, forged("thief", namespace));
    await world.advance(5_000);
    expect(victim().status).toEqual(before);
    expect(before?.podUID).toBe(podNamed("a")?.metadata.uid);
  });

  test("ownership: a Pod forged while its victim sleeps is taken away and never becomes its Pod", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await edit(world, { operatingMode: "Suspended" });
    await world.settled();
    for (const name of ["a", "thief"]) await world.client.create(pods, forged(name, namespace));
    const strangers = ground.read(pods).map(({ metadata }) => metadata.uid);
    await world.advance(5_000);
    expect(ground.read(pods)).toEqual([]);
    expect(condition(victim(), "Suspended")?.status).toBe("True");
    await edit(world, { operatingMode: "Running" });
    await world.advance(5_000);
    expect(condition(victim(), "Ready")?.status).toBe("True");
    expect(strangers).not.toContain(victim().status?.podUID);
  });

  test("ownership: a Pod forged in the moment of waking is replaced by the Sandbox's own", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await edit(world, { operatingMode: "Suspended" });
    await world.settled();
    let stranger: Pod | undefined;
    wire.before("create pods", async () => {
      stranger = await world.client.create(pods, forged("a", namespace));
    });
    await edit(world, { operatingMode: "Running" });
    await world.advance(10_000);
    expect(stranger).toBeDefined();
    expect(condition(victim(), "Ready")?.status).toBe("True");
    expect(victim().status?.podUID).toBe(podNamed("a")?.metadata.uid);
    expect(victim().status?.podUID).not.toBe(stranger?.metadata.uid);
  });

  test("ownership: a Sandbox that has had a Pod adopts no other, whatever its labels say", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await edit(world, { operatingMode: "Suspended" });
    await world.settled();
    const offered = forged("a", namespace);
    offered.metadata.ownerReferences = [];
    await world.client.create(pods, offered);
    await edit(world, { operatingMode: "Running" });
    await world.advance(5_000);
    expect(condition(victim(), "Ready")).toMatchObject({ status: "False", reason: "ReconcilerError" });
    expect(victim().status?.podIPs).toBeUndefined();
    await world.client.delete(pods, { namespace, name: "a" });
    await world.advance(60_000);
    expect(condition(victim(), "Ready")?.status).toBe("True");
  });

  test("ownership: a controller that is killed between making a Pod and naming it converges to one named Pod", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await edit(world, { operatingMode: "Suspended" });
    await world.settled();
    let stopped: Promise<void> | undefined;
    const killOnceMade = async (): Promise<void> => {
      if (podNamed("a") !== undefined) stopped ??= world.stopControllers();
    };
    wire.before("patch sandboxes/status", killOnceMade, 5);
    await edit(world, { operatingMode: "Running" });
    await world.clock.advance(1_000);
    await stopped;
    expect(victim().status?.podUID).not.toBe(podNamed("a")?.metadata.uid);
    world.startControllers();
    await world.advance(5_000);
    expect(ground.read(pods)).toHaveLength(1);
    expect(condition(victim(), "Ready")?.status).toBe("True");
    expect(victim().status?.podUID).toBe(podNamed("a")?.metadata.uid);
  });

  test("ownership: a CRD that drops the name costs one write for it, not one with every pass", async () => {
    await using opened = await open();
    const { world } = opened;
    const crd = { name: "sandboxes.agents.x-k8s.io" };
    const installed = await world.client.get(customResourceDefinitions, crd);
    const status = installed.spec.versions[0]?.schema?.openAPIV3Schema?.properties?.["status"];
    const path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/podUID";
    const edited = (body: { op: string; path: string; value?: unknown }) =>
      world.client.patch(customResourceDefinitions, crd, { type: "json", body: [body] });
    await edited({ op: "remove", path });
    try {
      await world.applied(sandboxes, sandbox("a"));
      expect(condition(victim(), "Ready")?.status).toBe("True");
      expect(victim().status?.podUID).toBeUndefined();
      world.writes.length = 0;
      for (const poke of ["1", "2", "3"]) {
        await world.client.patch(
          sandboxes,
          { namespace, name: "a" },
          { type: "merge", body: { metadata: { labels: { poke } } } },
        );
        await world.settled();
      }
      expect(world.writes.filter((write) => actionOf(write) === "patch sandboxes/status")).toEqual([]);
    } finally {
      await edited({ op: "add", path, value: status?.properties?.["podUID"] });
    }
  });

  test("ownership: a status write that fails costs no second Pod", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await edit(world, { operatingMode: "Suspended" });
    await world.settled();
    const made = wire.count("create pods");
    wire.refuse("patch sandboxes/status", internalError("the store is gone"), 3);
    await edit(world, { operatingMode: "Running" });
    await world.advance(10_000);
    expect(condition(victim(), "Ready")?.status).toBe("True");
    expect(wire.count("create pods") - made).toBe(1);
  });
});
