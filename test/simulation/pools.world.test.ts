import {
  annotationKeys,
  forbidden,
  formatTimestampMs,
  pods,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countsEveryMs } from "../../packages/server/src/controllers/warm-pool-population/status-pace.ts";
import { Ground } from "./ground.ts";
import { Interceptor } from "./interceptor.ts";
import { claim, condition, namespace, pool, template } from "./objects.ts";
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
  await world.applied(sandboxTemplates, template("tpl"));
  return { world, wire, [Symbol.asyncDispose]: () => world[Symbol.asyncDispose]() };
}

const scale = (world: World, replicas: number) =>
  world.client.patch(sandboxWarmPools, { namespace, name: "pool" }, { type: "merge", body: { spec: { replicas } } });
const poke = (world: World, value: string) =>
  world.client.patch(
    sandboxWarmPools,
    { namespace, name: "pool" },
    { type: "merge", body: { metadata: { labels: { poke: value } } } },
  );

describe("Pools in a world", () => {
  test("pools: R43, R44 members that no list shows yet are not made again", async () => {
    await using opened = await open({ config: { warmPoolWorkers: 8 } });
    const { world, wire } = opened;
    wire.freeze("sandboxes");
    await world.client.create(sandboxWarmPools, pool("pool", 3));
    await world.rested();
    for (const value of ["1", "2", "3", "4", "5"]) {
      await poke(world, value);
      await world.rested();
    }
    expect(wire.count("create sandboxes")).toBe(3);
    wire.thaw();
    await world.settled();
    expect(ground.read(sandboxes)).toHaveLength(3);
  });

  test("pools: a member that is Ready within five seconds names its Pod and is told of once", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxWarmPools, pool("pool", 2));
    expect(ground.read(sandboxes).map((member) => condition(member, "Ready")?.status)).toEqual(["True", "True"]);
    expect(wire.count("patch sandboxes/status")).toBe(4);
  });

  test("pools: a member that takes longer to start says so after five seconds", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.client.create(sandboxWarmPools, pool("pool", 1));
    await world.rested();
    expect(wire.count("create pods")).toBe(1);
    const [pod] = ground.read(pods);
    expect(ground.read(sandboxes).map(({ status }) => status)).toEqual([{ podUID: pod?.metadata.uid }]);
    await world.clock.advance(5_000, { busy: [() => !world.isIdle()], quietTurns: 3 });
    expect(ground.read(sandboxes).map((member) => condition(member, "Ready")?.reason)).toEqual([
      "DependenciesNotReady",
    ]);
  });

  test("pools: a sandbox of a template with autoSuspension waits awake, sleeps after its claim and wakes", async () => {
    await using opened = await open();
    const { world } = opened;
    const sleep = {
      autoSuspension: { inactivityTimeoutSeconds: 60 },
      wakePolicy: "OnTraffic",
      suspensionStrategy: { type: "Stop" },
      podFailurePolicy: { type: "Recreate", retriesMax: 1 },
    } as const;
    await world.client.create(sandboxTemplates, template("sleeper", sleep));
    await world.applied(sandboxWarmPools, pool("pool", 1, { sandboxTemplateRef: { name: "sleeper" } }));
    expect(ground.read(sandboxes)[0]?.spec).toMatchObject(sleep);
    await world.advance(120_000);
    await world.applied(sandboxClaims, claim("c"));
    const name = ground.read(sandboxClaims)[0]?.status?.sandbox?.name ?? "";
    const taken = () => world.client.get(sandboxes, { namespace, name });
    expect((await taken()).metadata.labels).toMatchObject({ "agents.x-k8s.io/launch-type": "warm" });
    await world.advance(58_000);
    expect(condition(await taken(), "Ready")?.status).toBe("True");
    await world.advance(3_000);
    expect(condition(await taken(), "Suspended")?.status).toBe("True");
    const body = {
      metadata: { annotations: { [annotationKeys.lastActivityAt]: formatTimestampMs(world.clock.nowMs()) } },
    };
    await world.client.patch(sandboxes, { namespace, name }, { type: "merge", body });
    await world.settled();
    expect(condition(await taken(), "Ready")?.status).toBe("True");
  });

  test("pools: a template that gains autoSuspension replaces the members of a Recreate pool", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxWarmPools, pool("pool", 1, { updateStrategy: { type: "Recreate" } }));
    const [before] = ground.read(sandboxes);
    const body = { spec: { autoSuspension: { inactivityTimeoutSeconds: 60 } } };
    await world.client.patch(sandboxTemplates, { namespace, name: "tpl" }, { type: "merge", body });
    await world.settled();
    const [after] = ground.read(sandboxes);
    expect(after?.metadata.uid).not.toBe(before?.metadata.uid);
    expect(after?.spec).toMatchObject(body.spec);
  });

  test("pools: R46 an own delete that the cache does not show yet is not replaced", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxWarmPools, pool("pool", 2));
    const made = wire.count("create sandboxes");
    wire.freeze("sandboxes");
    await scale(world, 1);
    await world.rested();
    await scale(world, 1);
    await poke(world, "1");
    await world.rested();
    expect(wire.count("create sandboxes")).toBe(made);
    wire.thaw();
    await world.settled();
    expect(ground.read(sandboxes)).toHaveLength(1);
  });

  test("pools: R47, R48 a phantom in the list is found out and its place filled", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxWarmPools, pool("pool", 1));
    wire.freeze("sandboxes");
    for (const member of ground.read(sandboxes)) await ground.write(sandboxes, member, "delete");
    await scale(world, 0);
    await world.rested();
    await scale(world, 1);
    await world.rested();
    expect(ground.read(sandboxes)).toHaveLength(1);
    wire.thaw();
    await world.settled();
    expect(ground.read(sandboxes)).toHaveLength(1);
  });

  test("pools: R49 a create whose answer was lost is looked up before another is made", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.freeze("sandboxes");
    wire.loseAnswer("create sandboxes");
    await world.client.create(sandboxWarmPools, pool("pool", 1));
    await world.advance(5_000);
    expect(ground.read(sandboxes)).toHaveLength(1);
    wire.thaw();
    await world.advance(5_000);
    expect(ground.read(sandboxes)).toHaveLength(1);
  });

  test("pools: R50 refused creates are told and tried again", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.refuse("create sandboxes", forbidden({ resource: "sandboxes", name: "x" }, "quota exceeded"), 2);
    await world.client.create(sandboxWarmPools, pool("pool", 2));
    await world.rested();
    const told = ground.read(sandboxWarmPools)[0];
    expect(JSON.stringify(told?.status?.conditions)).toContain("quota exceeded");
    await world.advance(10_000);
    expect(ground.read(sandboxes)).toHaveLength(2);
  });

  test("pools: R51 held members are announced once, and so is the end of it", async () => {
    await using opened = await open();
    const { world } = opened;
    world.cluster.node.unschedulable = () => true;
    await world.applied(sandboxWarmPools, pool("pool", 1));
    await world.advance(460_000);
    world.cluster.node.unschedulable = () => false;
    await poke(world, "1");
    await world.advance(120_000);
    const notes = world.writes
      .filter(({ path }) => path.includes("/events"))
      .map(({ body }) => (JSON.parse(body) as { reason: string }).reason)
      .filter((reason) => reason.startsWith("WarmPool"));
    expect(notes).toEqual(["WarmPoolNotProgressing", "WarmPoolProgressing"]);
  });

  test("pools: R56 without a template nothing is deleted", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxWarmPools, pool("pool", 2, { updateStrategy: { type: "Recreate" } }));
    await world.client.patch(
      sandboxWarmPools,
      { namespace, name: "pool" },
      { type: "merge", body: { spec: { sandboxTemplateRef: { name: "missing" } } } },
    );
    await world.advance(1_000);
    expect(ground.read(sandboxes)).toHaveLength(2);
    expect(condition(ground.read(sandboxWarmPools)[0], "TemplateResolved")?.reason).toBe("TemplateNotFound");
  });

  test("pools: R59 zero values leave the status and the generation is told", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxWarmPools, pool("pool", 1));
    await world.advance(countsEveryMs);
    expect(ground.read(sandboxWarmPools)[0]?.status).toMatchObject({
      replicas: 1,
      readyReplicas: 1,
      observedGeneration: 1,
    });
    await scale(world, 0);
    await world.advance(countsEveryMs);
    const { status } = ground.read(sandboxWarmPools)[0] ?? {};
    expect(status).not.toHaveProperty("replicas");
    expect(status).not.toHaveProperty("readyReplicas");
    expect(status?.observedGeneration).toBe(2);
  });

  test("pools: counts that change with every claim are told once a second, and right in the end", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxWarmPools, pool("pool", 4));
    await world.advance(countsEveryMs);
    const before = wire.count("patch sandboxwarmpools/status");
    for (let index = 0; index < 10; index++) {
      await world.applied(sandboxClaims, claim(`claim-${index}`));
      await world.advance(100);
    }
    // Ten claims in a second move the counts thirty times.
    expect(wire.count("patch sandboxwarmpools/status") - before).toBeLessThanOrEqual(2);
    await world.advance(countsEveryMs);
    expect(ground.read(sandboxWarmPools)[0]?.status).toMatchObject({ replicas: 4, readyReplicas: 4 });
  });
});
