import type { Sandbox } from "@agent-sandbox/api";
import {
  networkPolicies,
  pods,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
  services,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { actionOf } from "./logging-transport.ts";
import { claim, condition, namespace, pool, sandbox, template } from "./objects.ts";
import { World, type WorldOptions } from "./world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

const open = (options: WorldOptions = {}) => World.open({ ground, ...options });
const patch = (world: World, name: string, spec: object) =>
  world.client.patch(sandboxes, { namespace, name }, { type: "merge", body: { spec } });
const only = async (world: World): Promise<Sandbox | undefined> => (await world.sandboxes())[0];
const reasons = (object: Parameters<typeof condition>[0]) => [
  condition(object, "Suspended")?.reason,
  condition(object, "Ready")?.reason,
];

async function withPool(options: WorldOptions = {}, replicas = 2): Promise<World> {
  const world = await open(options);
  await world.client.create(sandboxTemplates, template("tpl"));
  await world.applied(sandboxWarmPools, pool("pool", replicas));
  world.writes.length = 0;
  return world;
}

describe("Sandbox in a world", () => {
  test("world: P1 a Sandbox becomes Ready with Pod, Service and the reference's status", async () => {
    await using world = await open();
    await world.applied(sandboxes, sandbox("a", { service: true }));
    const made = await only(world);
    expect(made?.status).toMatchObject({
      service: "a",
      serviceFQDN: "a.default.svc.cluster.local",
      selector: "agents.x-k8s.io/sandbox-name-hash=e40c292c",
    });
    expect(made?.status?.conditions?.map(({ type, status }) => `${type}=${status}`)).toEqual([
      "Suspended=False",
      "PodScheduled=True",
      "Ready=True",
    ]);
    expect(made?.metadata.annotations?.["agents.x-k8s.io/pod-name"]).toBe("a");
    expect((await world.client.get(services, { namespace, name: "a" })).spec).toMatchObject({ clusterIP: "None" });
  });

  test("world: S9, core N4 suspend and resume go through every state", async () => {
    await using world = await open();
    await world.applied(sandboxes, sandbox("a"));
    world.cluster.node.lingers = () => true;
    await patch(world, "a", { operatingMode: "Suspended" });
    await world.settled();
    expect(reasons(await only(world))).toEqual(["PodTerminating", "SandboxSuspended"]);
    world.cluster.node.lingers = () => false;
    await world.client.patch(
      pods,
      { namespace, name: "a" },
      { type: "merge", body: { metadata: { labels: { poke: "1" } } } },
    );
    await world.settled();
    expect(reasons(await only(world))).toEqual(["PodTerminated", "SandboxSuspended"]);
    expect((await only(world))?.metadata.annotations ?? {}).not.toHaveProperty(["agents.x-k8s.io/pod-name"]);
    await patch(world, "a", { operatingMode: "Running" });
    await world.settled();
    expect(reasons(await only(world))).toEqual(["NotSuspended", "DependenciesReady"]);
  });

  test("world: S10 a deleted Pod comes back with another UID and Suspended keeps its time", async () => {
    await using world = await open();
    await world.applied(sandboxes, sandbox("a"));
    const [before] = await world.pods();
    const time = condition(await only(world), "Suspended")?.lastTransitionTime;
    await world.advance(5_000);
    await world.client.delete(pods, { namespace, name: "a" });
    await world.settled();
    const [after] = await world.pods();
    expect(after?.metadata.uid).not.toBe(before?.metadata.uid);
    expect(condition(await only(world), "Suspended")?.lastTransitionTime).toBe(time);
  });

  test("world: S10 a foreign Pod of the same name is left alone until it goes", async () => {
    await using world = await open();
    const foreign = {
      apiVersion: "v1" as const,
      kind: "Pod" as const,
      metadata: { name: "a", namespace },
      spec: { containers: [{ name: "c", image: "i" }] },
    };
    await world.client.create(pods, foreign);
    await world.applied(sandboxes, sandbox("a", { operatingMode: "Suspended" }));
    expect(reasons(await only(world))).toEqual(["PodNotOwned", "SandboxSuspended"]);
    await world.client.delete(pods, { namespace, name: "a" });
    await world.settled();
    expect(reasons(await only(world))).toEqual(["PodTerminated", "SandboxSuspended"]);
  });

  test("world: X2, X3 expiry is announced first, and Retain leaves only conditions and whom the Sandbox named", async () => {
    await using world = await open();
    await world.applied(
      sandboxes,
      sandbox("a", { service: true, shutdownTime: new Date(world.clock.nowMs() + 10_000).toISOString() }),
    );
    world.writes.length = 0;
    await world.advance(10_100);
    expect(world.writes.map(actionOf).filter((action) => action !== "create events")).toEqual([
      "patch sandboxes/status",
      "delete pods",
      "delete services",
      "patch sandboxes",
      "patch sandboxes/status",
    ]);
    expect(Object.keys((await only(world))?.status ?? {}).sort()).toEqual(["conditions", "podUID"]);
    expect(await world.pods()).toEqual([]);
    await patch(world, "a", { shutdownTime: null });
    await world.settled();
    expect(condition(await only(world), "Ready")?.status).toBe("True");
  });

  test("world: X3 shutdownPolicy Delete takes the Sandbox", async () => {
    await using world = await open();
    await world.applied(
      sandboxes,
      sandbox("a", { shutdownPolicy: "Delete", shutdownTime: new Date(world.clock.nowMs() + 1_000).toISOString() }),
    );
    await world.advance(2_000);
    expect([await world.sandboxes(), await world.pods()]).toEqual([[], []]);
  });

  test("world: an idle Sandbox falls asleep and traffic wakes it", async () => {
    await using world = await open();
    await world.applied(sandboxes, sandbox("a", { autoSuspension: { inactivityTimeoutSeconds: 60 } }));
    await world.advance(61_000);
    expect(condition(await only(world), "Suspended")).toMatchObject({
      status: "True",
      message: "Pod has been terminated. Sandbox is suspended after 60 s without activity; it wakes on traffic",
    });
    expect((await only(world))?.spec.operatingMode).toBe("Running");
    const annotations = { "agent-sandbox.dev/last-activity-at": new Date(world.clock.nowMs()).toISOString() };
    await world.client.patch(
      sandboxes,
      { namespace, name: "a" },
      { type: "merge", body: { metadata: { annotations } } },
    );
    await world.settled();
    expect(condition(await only(world), "Ready")?.status).toBe("True");
  });

  test("world: podFailurePolicy replaces a failed Pod after its backoff and gives up in the end", async () => {
    await using world = await open();
    world.cluster.node.ends = () => "Failed";
    await world.applied(
      sandboxes,
      sandbox("a", { podFailurePolicy: { type: "Recreate", retriesMax: 1, backoffSeconds: 5 } }),
    );
    expect(condition(await only(world), "Ready")).toMatchObject({
      reason: "DependenciesNotReady",
      message: "Pod failed; replacement 1 of 1 follows",
    });
    await world.advance(6_000);
    expect(condition(await only(world), "Ready")?.reason).toBe("PodFailed");
    expect(condition(await only(world), "Finished")?.reason).toBe("PodFailed");
  });

  test("world: a second pass over a ready Sandbox writes nothing", async () => {
    await using world = await open();
    await world.applied(sandboxes, sandbox("a", { service: true }));
    world.writes.length = 0;
    await world.stopControllers();
    world.startControllers();
    await world.advance(1_000);
    expect(world.writes).toEqual([]);
  });
});

describe("Pools and claims in a world", () => {
  test("world: R42 a warm claim costs five requests, three before it is Ready", async () => {
    await using world = await withPool();
    await world.client.create(sandboxClaims, claim("c"));
    await world.settled();
    const bound = (await world.claims())[0]?.status?.sandbox?.name ?? "";
    const mine = world.writes.filter(
      ({ path, body }) => path.includes(bound) || path.includes("sandboxclaims/c") || body.includes('"name":"c.'),
    );
    expect(mine.map(actionOf).sort()).toEqual([
      "create events",
      "patch pods",
      "patch sandboxclaims",
      "patch sandboxclaims/status",
      "patch sandboxes",
    ]);
    expect(mine.findIndex((write) => actionOf(write) === "create events")).toBeGreaterThan(
      mine.findIndex((write) => actionOf(write) === "patch sandboxclaims/status"),
    );
    const taken = await world.client.get(sandboxes, { namespace, name: bound });
    expect(taken.metadata.generation).toBe(1);
    expect((await world.claims())[0]?.status).toMatchObject({
      sandbox: { name: bound },
      conditions: [{ type: "Ready", status: "True" }],
    });
  });

  test("world: a pool member costs five requests", async () => {
    await using world = await withPool({}, 0);
    await world.client.patch(
      sandboxWarmPools,
      { namespace, name: "pool" },
      { type: "merge", body: { spec: { replicas: 1 } } },
    );
    await world.settled();
    const mine = world.writes.filter(({ path }) => !path.includes("sandboxwarmpools"));
    expect(mine.map(actionOf)).toEqual(
      [
        "create sandboxes",
        "create pods",
        "patch sandboxes/status",
        "patch sandboxes/status",
        "patch sandboxes/status",
      ].slice(0, mine.length),
    );
    expect(mine.length).toBeLessThanOrEqual(5);
  });

  test("world: R02 three claims on two members give two warm and one cold, each its own", async () => {
    await using world = await withPool();
    for (const name of ["c1", "c2", "c3"]) await world.client.create(sandboxClaims, claim(name));
    await world.settled();
    const claims = await world.claims();
    expect(claims.every((entry) => condition(entry, "Ready")?.status === "True")).toBe(true);
    expect(new Set(claims.map(({ status }) => status?.sandbox?.name)).size).toBe(3);
    const owned = (await world.sandboxes()).filter(
      ({ metadata }) => metadata.ownerReferences?.[0]?.kind === "SandboxClaim",
    );
    expect(owned.map(({ metadata }) => metadata.labels?.["agents.x-k8s.io/launch-type"] ?? "").toSorted()).toEqual([
      "cold",
      "warm",
      "warm",
    ]);
  });

  test("world: R39 a claim says what is missing and is served when it comes", async () => {
    await using world = await open();
    await world.applied(sandboxClaims, claim("c"));
    expect(condition((await world.claims())[0], "Ready")).toMatchObject({
      reason: "WarmPoolNotFound",
      message: 'SandboxWarmPool "pool" not found',
    });
    await world.applied(sandboxWarmPools, pool("pool", 0));
    expect(condition((await world.claims())[0], "Ready")).toMatchObject({
      reason: "TemplateNotFound",
      message: 'SandboxTemplate "tpl" not found',
    });
    await world.applied(sandboxTemplates, template("tpl"));
    expect(condition((await world.claims())[0], "Ready")).toMatchObject({ status: "True" });
  });

  test("world: R21 a claim waits for a member that has no address yet, without a condition", async () => {
    await using world = await open();
    world.cluster.node.frozen = true;
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 1));
    await world.applied(sandboxClaims, claim("c"));
    expect((await world.claims())[0]?.status).toBeUndefined();
    world.cluster.node.frozen = false;
    await world.client.create(sandboxClaims, claim("poke", { startPolicy: "WarmOnly" }));
    await world.settled();
    expect((await world.claims()).find(({ metadata }) => metadata.name === "c")?.status?.sandbox?.name).toMatch(
      /^pool-/,
    );
  });

  test("world: N3 a template's policy stays while its Sandboxes run", async () => {
    await using world = await withPool();
    await world.applied(sandboxClaims, claim("c"));
    await world.client.delete(sandboxTemplates, { namespace, name: "tpl" });
    await world.settled();
    expect(await world.client.get(networkPolicies, { namespace, name: "tpl-network-policy" })).toBeDefined();
    await world.client.delete(sandboxClaims, { namespace, name: "c" });
    await world.client.delete(sandboxWarmPools, { namespace, name: "pool" });
    await world.settled();
    expect(ground.read(sandboxTemplates)).toEqual([]);
    expect(ground.read(networkPolicies)).toEqual([]);
  });

  test("world: N4 pointing a bound claim elsewhere changes nothing about its Sandbox", async () => {
    await using world = await withPool();
    await world.applied(sandboxClaims, claim("c"));
    await world.client.create(sandboxTemplates, template("other"));
    await world.client.create(sandboxWarmPools, pool("second", 0, { sandboxTemplateRef: { name: "other" } }));
    const before = (await world.claims())[0]?.status?.sandbox?.name;
    await world.client.patch(
      sandboxClaims,
      { namespace, name: "c" },
      { type: "merge", body: { spec: { warmPoolRef: { name: "second" } } } },
    );
    await world.settled();
    const sandboxAfter = await world.client.get(sandboxes, { namespace, name: before ?? "" });
    expect((await world.claims())[0]?.status?.sandbox?.name).toBe(before);
    expect(sandboxAfter.metadata.labels?.["agents.x-k8s.io/sandbox-template-ref-hash"]).toBe("9d22159f");
  });

  test("world: additional metadata reaches the running Pod, and leaves it", async () => {
    await using world = await withPool();
    const labels = { "sandbox.users.io/team": "a" };
    await world.applied(sandboxClaims, claim("c", { additionalPodMetadata: { labels } }));
    const name = (await world.claims())[0]?.status?.sandbox?.name ?? "";
    expect((await world.client.get(pods, { namespace, name })).metadata.labels).toMatchObject(labels);
    await world.client.patch(
      sandboxClaims,
      { namespace, name: "c" },
      { type: "merge", body: { spec: { additionalPodMetadata: null } } },
    );
    await world.settled();
    expect((await world.client.get(pods, { namespace, name })).metadata.labels).not.toHaveProperty([
      "sandbox.users.io/team",
    ]);
  });

  test("world: bindTimeoutSeconds ends a claim that only wants warm", async () => {
    await using world = await withPool({}, 0);
    await world.applied(sandboxClaims, claim("c", { startPolicy: "WarmOnly", bindTimeoutSeconds: 5 }));
    expect(condition((await world.claims())[0], "Ready")?.reason).toBe("WarmSandboxPending");
    await world.advance(6_000);
    expect(condition((await world.claims())[0], "Ready")).toMatchObject({
      reason: "BindTimeout",
      message: "no Sandbox could be bound within 5 s",
    });
  });

  test("world: R33 a claim's expiry is persisted before anything is deleted", async () => {
    await using world = await withPool();
    const shutdownTime = new Date(world.clock.nowMs() + 5_000).toISOString();
    await world.applied(sandboxClaims, claim("c", { lifecycle: { shutdownTime, shutdownPolicy: "Retain" } }));
    world.writes.length = 0;
    await world.advance(5_100);
    const actions = world.writes
      .map(actionOf)
      .filter((action) => /sandboxclaims\/status|delete sandboxes/.test(action));
    expect(actions.slice(0, 2)).toEqual(["patch sandboxclaims/status", "delete sandboxes"]);
    expect(condition((await world.claims())[0], "Ready")).toMatchObject({ reason: "ClaimExpired" });
  });

  test("world: R51 unschedulable members are held and told", async () => {
    await using world = await open();
    world.cluster.node.unschedulable = () => true;
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 1));
    await world.advance(460_000);
    const [held] = ground.read(sandboxWarmPools);
    expect(condition(held, "Progressing")).toMatchObject({ status: "False", reason: "Unschedulable" });
    expect(await world.sandboxes()).toHaveLength(1);
  });
});
