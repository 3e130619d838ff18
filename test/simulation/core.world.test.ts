import type { Pod, Sandbox } from "@agent-sandbox/api";
import { internalError, persistentVolumeClaims, pods, sandboxes, services } from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { Interceptor } from "./interceptor.ts";
import { actionOf } from "./logging-transport.ts";
import { condition, namespace, sandbox } from "./objects.ts";
import { World, type WorldOptions } from "./world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

async function open(options: WorldOptions = {}): Promise<{ world: World; wire: Interceptor } & AsyncDisposable> {
  const wire = new Interceptor();
  const world = await World.open({ ground, disturb: wire.wrap, ...options });
  return { world, wire, [Symbol.asyncDispose]: () => world[Symbol.asyncDispose]() };
}

const only = (): Sandbox | undefined => ground.read(sandboxes)[0];
const key = { namespace, name: "a" };
const edit = (world: World, spec: object, metadata: object = {}) =>
  world.client.patch(sandboxes, key, { type: "merge", body: { spec, metadata } });
const actions = (world: World): string[] => world.writes.map(actionOf).filter((action) => action !== "create events");
const v1alpha1 = "/apis/agents.x-k8s.io/v1alpha1/namespaces/default/sandboxes";
const volume = {
  metadata: { name: "v" },
  spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
};

describe("Conversion in a world", () => {
  test("core: C5, core N8 an object written through v1alpha1 is suspended by replicas and keeps what v1beta1 knows", async () => {
    await using opened = await open();
    const { world } = opened;
    const old = {
      ...sandbox("a"),
      apiVersion: "agents.x-k8s.io/v1alpha1",
      spec: { ...sandbox("a").spec, replicas: 1 },
    };
    await world.client.raw({ method: "POST", path: v1alpha1, body: old });
    await world.settled();
    const [before] = ground.read(pods);
    expect(only()?.status?.nodeName).toBe("node-1");
    const read = await world.client.raw({ method: "GET", path: `${v1alpha1}/a` });
    expect(JSON.stringify(read)).toContain('"replicas":1');
    expect(JSON.stringify(read)).not.toContain("operatingMode");
    await world.client.raw({ method: "PUT", path: `${v1alpha1}/a`, body: { ...(read as object) } });
    await world.settled();
    expect(ground.read(pods)[0]?.metadata.uid).toBe(before?.metadata.uid);
    expect(only()?.status?.nodeName).toBe("node-1");
    await world.client.raw({
      method: "PUT",
      path: `${v1alpha1}/a/scale`,
      body: { apiVersion: "autoscaling/v1", kind: "Scale", metadata: key, spec: { replicas: 0 } },
    });
    await world.settled();
    expect(only()?.spec.operatingMode).toBe("Suspended");
    expect(ground.read(pods)).toEqual([]);
  });

  test("core: C6 volumeClaimTemplates cannot be changed, added or removed", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.client.create(sandboxes, sandbox("a", { volumeClaimTemplates: [volume] }));
    const larger = { ...volume, spec: { ...volume.spec, resources: { requests: { storage: "2Gi" } } } };
    await expect(edit(world, { volumeClaimTemplates: [larger] })).rejects.toThrow(/immutable/);
    await expect(edit(world, { volumeClaimTemplates: null })).rejects.toThrow(/immutable/);
    await world.client.create(sandboxes, sandbox("b"));
    const added = { type: "merge" as const, body: { spec: { volumeClaimTemplates: [volume] } } };
    await expect(world.client.patch(sandboxes, { namespace, name: "b" }, added)).rejects.toThrow(/immutable/);
  });

  test("core: core N7 a state annotation nobody can read does not break v1alpha1", async () => {
    await using opened = await open();
    const { world } = opened;
    const broken = sandbox("a");
    const annotations = { "agents.x-k8s.io/v1alpha1-sandbox-state": "{not json" };
    await world.client.create(sandboxes, { ...broken, metadata: { ...broken.metadata, annotations } });
    const read = await world.client.raw({ method: "GET", path: v1alpha1 });
    expect(JSON.stringify(read)).toContain('"replicas":1');
  });
});

describe("Suspension in a world", () => {
  test("core: S9 the generation follows each change of mode and Suspended keeps its rules of time", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a", { service: true }));
    const times: (string | undefined)[] = [condition(only(), "Suspended")?.lastTransitionTime];
    for (const operatingMode of ["Suspended", "Running", "Suspended", "Running"]) {
      await world.advance(5_000);
      await edit(world, { operatingMode });
      await world.settled();
      times.push(condition(only(), "Suspended")?.lastTransitionTime);
    }
    expect(only()?.metadata.generation).toBe(5);
    expect(only()?.status?.conditions?.map(({ observedGeneration }) => observedGeneration)).toEqual([5, 5, 5]);
    expect(new Set(times).size).toBe(5);
    expect(ground.read(services)).toHaveLength(1);
  });

  test("core: core N2 a Pod that is gone when the suspend arrives is no error", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxes, sandbox("a"));
    wire.freeze("pods");
    for (const pod of ground.read(pods)) await ground.write(pods, pod, "delete");
    await edit(world, { operatingMode: "Suspended" });
    await world.rested();
    expect(condition(only(), "Suspended")?.status).toBe("True");
    expect(JSON.stringify(world.writes)).not.toContain("ReconcilerError");
    wire.thaw();
  });

  test("suspension: sleep is announced against the version that was judged, before the Pod goes", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a", { autoSuspension: { inactivityTimeoutSeconds: 60 } }));
    world.writes.length = 0;
    await world.advance(61_000);
    expect(actions(world).slice(0, 2)).toEqual(["patch sandboxes/status", "delete pods"]);
    expect(world.writes[0]?.body).toContain("resourceVersion");
    expect(world.writes[0]?.body).toContain("SandboxSuspended");
  });

  test("suspension: idle time begins when the Sandbox is Ready, however long it took to start", async () => {
    await using opened = await open();
    const { world } = opened;
    world.cluster.node.unready = () => true;
    await world.applied(sandboxes, sandbox("a", { autoSuspension: { inactivityTimeoutSeconds: 5 } }));
    await world.advance(120_000);
    expect(condition(only(), "Ready")).toMatchObject({ status: "False", reason: "DependenciesNotReady" });
    world.cluster.node.unready = () => false;
    await world.settled();
    expect(condition(only(), "Ready")?.status).toBe("True");
    await world.advance(4_000);
    expect(condition(only(), "Ready")?.status).toBe("True");
    await world.advance(3_000);
    expect(condition(only(), "Suspended")?.status).toBe("True");
  });

  test("suspension: a user's resume starts a Sandbox that was unused for long", async () => {
    await using opened = await open();
    const { world } = opened;
    const spec = { autoSuspension: { inactivityTimeoutSeconds: 60 }, wakePolicy: "Never" } as const;
    await world.applied(sandboxes, sandbox("a", spec));
    await edit(world, { operatingMode: "Suspended" });
    await world.advance(3_600_000);
    expect(condition(only(), "Suspended")?.status).toBe("True");
    await edit(world, { operatingMode: "Running" });
    await world.settled();
    expect(condition(only(), "Ready")?.status).toBe("True");
    expect(only()?.metadata.annotations?.["agent-sandbox.dev/suspended-at"]).toBeUndefined();
  });

  test("suspension: a Sandbox with a time to live is not over because its suspended Pod ended", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a", { ttlSecondsAfterFinished: 0, shutdownPolicy: "Delete" }));
    world.cluster.node.lingers = () => true;
    await edit(world, { operatingMode: "Suspended" });
    await world.settled();
    for (const pod of ground.read(pods)) await ground.write(pods, pod, { status: { ...pod.status, phase: "Failed" } });
    await world.advance(5_000);
    expect(condition(only(), "Finished")).toBeUndefined();
    world.cluster.node.lingers = () => false;
    await world.advance(1_000);
    expect(condition(only(), "Suspended")?.status).toBe("True");
  });

  test("suspension: activity in the last instant makes the announcement fail and the Pod stays", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxes, sandbox("a", { autoSuspension: { inactivityTimeoutSeconds: 60 } }));
    const [before] = ground.read(pods);
    world.writes.length = 0;
    wire.before("patch sandboxes/status", () =>
      edit(
        world,
        {},
        { annotations: { "agent-sandbox.dev/last-activity-at": new Date(ground.clock.nowMs()).toISOString() } },
      ),
    );
    await world.advance(61_000);
    expect(world.writes.map(({ status }) => status)).toContain(409);
    expect(actions(world)).not.toContain("delete pods");
    expect(ground.read(pods)[0]?.metadata.uid).toBe(before?.metadata.uid);
    await world.advance(60_000);
    expect(condition(only(), "Suspended")?.status).toBe("True");
  });

  test("suspension: a suspend with OnTraffic is not undone by what happened before it, and can be repeated", async () => {
    await using opened = await open();
    const { world } = opened;
    const active = () => ({
      annotations: { "agent-sandbox.dev/last-activity-at": new Date(ground.clock.nowMs()).toISOString() },
    });
    await world.applied(sandboxes, sandbox("a"));
    await world.advance(300);
    await edit(world, {}, active());
    await world.advance(200);
    await edit(world, { operatingMode: "Suspended", wakePolicy: "OnTraffic" });
    await world.settled();
    expect(condition(only(), "Suspended")?.status).toBe("True");
    await world.advance(200);
    await edit(world, {}, active());
    await world.settled();
    expect(condition(only(), "Ready")?.status).toBe("True");
    await world.advance(200);
    await edit(world, { operatingMode: "Suspended" }, { annotations: { "agent-sandbox.dev/suspended-at": null } });
    await world.settled();
    expect(condition(only(), "Suspended")?.status).toBe("True");
  });
});

describe("Races of the Sandbox controller", () => {
  test("core: core N0a a status for a Sandbox that is gone is no failure", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.before("patch sandboxes/status", async () => {
      for (const found of ground.read(sandboxes)) await ground.write(sandboxes, found, "delete");
    });
    await world.applied(sandboxes, sandbox("a"));
    expect(ground.read(sandboxes)).toEqual([]);
    expect(await world.registry.metrics()).not.toContain(
      'controller_runtime_reconcile_errors_total{controller="sandbox"} 1',
    );
  });

  test("core: core N0b, core N1 a Pod that the cache does not show yet is found, not doubled", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.freeze("pods");
    wire.loseAnswer("create pods");
    await world.client.create(sandboxes, sandbox("a"));
    await world.advance(1_000);
    expect(ground.read(pods)).toHaveLength(1);
    expect(only()?.metadata.annotations?.["agents.x-k8s.io/pod-name"]).toBe("a");
    expect(condition(only(), "Ready")?.reason).toBe("DependenciesNotReady");
    wire.thaw();
    await world.advance(1_000);
    expect(condition(only(), "Ready")?.status).toBe("True");
  });

  test("core: P10 two owned Pods of which none was ever named are told once, by condition and Event, and not tried again", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await world.stopControllers();
    await world.client.patch(
      sandboxes,
      key,
      { type: "merge", body: { status: { podUID: null } } },
      { subresource: "status" },
    );
    const [own] = ground.read(pods);
    const second = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: {
        name: "twin",
        namespace,
        labels: own?.metadata.labels,
        ownerReferences: own?.metadata.ownerReferences,
      },
      spec: { containers: [{ name: "c", image: "i" }] },
    };
    await world.client.create(pods, second as Pod);
    world.startControllers();
    await world.advance(5_000);
    expect(condition(only(), "Ready")?.reason).toBe("MultiplePods");
    await edit(world, {}, { labels: { poke: "1" } });
    await world.advance(5_000);
    const told = world.writes.filter(({ path, body }) => path.includes("/events") && body.includes("MultiplePods"));
    expect(told).toHaveLength(1);
  });

  test("core: X5 nothing expires before its instant", async () => {
    await using opened = await open();
    const { world } = opened;
    const shutdownTime = new Date(ground.clock.nowMs() + 10_000).toISOString();
    await world.applied(sandboxes, sandbox("a", { shutdownTime }));
    await world.advance(9_900);
    expect(condition(only(), "Ready")?.status).toBe("True");
    await world.advance(200);
    expect(condition(only(), "Ready")?.reason).toBe("SandboxExpired");
  });

  test("core: core N10 a leader that takes over between the two passes of an expiry finishes it", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    const shutdownTime = new Date(ground.clock.nowMs() + 1_000).toISOString();
    await world.applied(sandboxes, sandbox("a", { shutdownTime }));
    let stopped: Promise<void> | undefined;
    wire.before("patch sandboxes/status", async () => {
      stopped = world.stopControllers();
    });
    await world.clock.advance(1_100);
    await stopped;
    expect(ground.read(pods)).toHaveLength(1);
    world.startControllers();
    await world.advance(1_000);
    expect(condition(only(), "Ready")?.reason).toBe("SandboxExpired");
    expect(ground.read(pods)).toEqual([]);
  });

  test("core: D1 a volume claim has its name, label, owner and place in the Pod", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a", { volumeClaimTemplates: [volume] }));
    const [made] = ground.read(persistentVolumeClaims);
    expect(made?.metadata).toMatchObject({ name: "v-a", ownerReferences: [{ kind: "Sandbox", name: "a" }] });
    expect(ground.read(pods)[0]?.spec.volumes).toContainEqual({
      name: "v",
      persistentVolumeClaim: { claimName: "v-a" },
    });
  });

  test("core: K8 twenty Sandboxes at once all become Ready", async () => {
    await using opened = await open();
    const { world } = opened;
    for (let index = 0; index < 20; index++) await world.client.create(sandboxes, sandbox(`s${index}`));
    await world.settled();
    expect(ground.read(sandboxes).filter((found) => condition(found, "Ready")?.status === "True")).toHaveLength(20);
  });

  test("core: K2 with --cache-label-selectors only Pods and Services are watched by label", async () => {
    const watched: string[] = [];
    const disturb: NonNullable<WorldOptions["disturb"]> = (transport) => ({
      request: (request) => {
        if (actionOf(request).startsWith("watch ")) watched.push(request.path);
        return transport.request(request);
      },
      upgrade: (request) => transport.upgrade(request),
      close: () => transport.close(),
    });
    await using world = await World.open({ ground, disturb, config: { cacheLabelSelectors: true } });
    await world.applied(sandboxes, sandbox("a", { service: true }));
    expect(condition(only(), "Ready")?.status).toBe("True");
    const selective = watched.filter((path) => path.includes("labelSelector=agents.x-k8s.io%2Fsandbox-name-hash"));
    expect(selective.map((path) => path.split("?")[0] ?? "").toSorted()).toEqual(["/api/v1/pods", "/api/v1/services"]);
    expect(watched).toHaveLength(13);
  });

  test("core: K9 a term that ended leaves no timer behind", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a", { autoSuspension: { inactivityTimeoutSeconds: 600 } }));
    const before = ground.clock.timers;
    await world.stopControllers();
    await world.clock.settled();
    const idle = ground.clock.timers;
    expect(idle).toBeLessThan(before);
    world.startControllers();
    await world.advance(1_000);
    await world.stopControllers();
    await world.clock.settled();
    expect(ground.clock.timers).toBe(idle);
  });

  test("core: a failed Service write is told in Ready and healed", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.refuse("create services", internalError("no address left"));
    await world.client.create(sandboxes, sandbox("a", { service: true }));
    await world.rested();
    await world.advance(2_000);
    expect(JSON.stringify(world.writes)).toContain("no address left");
    expect(condition(only(), "Ready")?.status).toBe("True");
  });
});

describe("Write-behind in a world", () => {
  const drift = (world: World) => edit(world, { podTemplate: { metadata: { labels: { team: "a" } } } });
  const patches = (world: World): number => actions(world).filter((action) => action === "patch pods").length;
  const label = (): string | undefined => ground.read(pods)[0]?.metadata.labels?.["team"];

  test("write-behind: W1 without a window the patch is made in line, once", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await drift(world);
    await world.rested();
    await edit(world, {}, { labels: { poke: "1" } });
    await world.rested();
    expect([patches(world), label()]).toEqual([1, "a"]);
  });

  test("write-behind: W2 a window of an hour defers one patch by a second, and nothing else", async () => {
    await using opened = await open({ config: { writeBehindMs: 3_600_000 } });
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await drift(world);
    await world.rested();
    expect([patches(world), label()]).toEqual([0, undefined]);
    expect(condition(only(), "Ready")?.observedGeneration).toBe(2);
    await world.advance(600);
    await edit(world, {}, { labels: { poke: "1" } });
    await world.advance(390);
    expect(patches(world)).toBe(0);
    await world.advance(20);
    expect([patches(world), label()]).toEqual([1, "a"]);
    await world.advance(5_000);
    expect(patches(world)).toBe(1);
  });

  test("write-behind: W3 a new process sees the change again and writes it once", async () => {
    await using opened = await open({ config: { writeBehindMs: 1_000 } });
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await drift(world);
    await world.advance(900);
    await world.stopControllers();
    world.startControllers();
    await world.advance(900);
    expect(patches(world)).toBe(0);
    await world.advance(200);
    expect([patches(world), label()]).toEqual([1, "a"]);
  });
});
