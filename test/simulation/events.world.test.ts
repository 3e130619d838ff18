import {
  events,
  forbidden,
  pods,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { Interceptor } from "./interceptor.ts";
import { claim, condition, namespace, pool, sandbox, template } from "./objects.ts";
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

/** The events about an object, in order. */
const told = async ({ client }: World, name: string): Promise<string[]> =>
  (await client.list(events)).items
    .filter(({ regarding }) => regarding?.name === name)
    .sort((a, b) => Number(a.metadata.resourceVersion) - Number(b.metadata.resourceVersion))
    .map(({ type, reason, note }) => `${type} ${reason}: ${note}`);
const poke = (world: World, value: string) =>
  world.client.patch(
    sandboxClaims,
    { namespace, name: "c" },
    { type: "merge", body: { metadata: { labels: { poke: value } } } },
  );
/** The value of a metric over all its labels; undefined when it has no series. */
async function metric(world: World, name: string): Promise<number | undefined> {
  const lines = (await world.registry.metrics()).split("\n").filter((line) => line.startsWith(`${name}{`));
  return lines.length === 0 ? undefined : lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

describe("What users are told", () => {
  test("events: a Sandbox tells of its Pod, its readiness and its sleep", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxes, sandbox("a"));
    await world.client.patch(
      sandboxes,
      { namespace, name: "a" },
      { type: "merge", body: { spec: { operatingMode: "Suspended" } } },
    );
    await world.settled();
    expect(await told(world, "a")).toEqual([
      'Normal SandboxPodCreated: Created Pod "a"',
      "Normal SandboxReady: Sandbox is ready",
      "Normal SandboxSuspended: Pod has been terminated. Sandbox is suspended",
    ]);
  });

  test("events: a Pod that cannot be made is told of once, however often it is tried", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.refuse("create pods", forbidden({ resource: "pods", name: "a" }, "exceeded quota: pods"), 5);
    await world.client.create(sandboxes, sandbox("a"));
    await world.advance(10_000);
    const failures = (await told(world, "a")).filter((line) => line.startsWith("Warning SandboxPodCreateFailed"));
    expect(failures).toHaveLength(1);
    expect(failures[0]).toContain("exceeded quota");
    expect(condition(ground.read(sandboxes)[0], "Ready")?.status).toBe("True");
  });

  test("events: members of a pool stay silent", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 2));
    expect(ground.read(pods)).toHaveLength(2);
    expect((await world.client.list(events)).items).toEqual([]);
  });

  test("events: a claim that cannot be served says why, once per reason", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxClaims, claim("c"));
    await poke(world, "1");
    await world.settled();
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 0));
    const missing = 'Warning WarmPoolNotFound: SandboxWarmPool "pool" not found';
    expect((await told(world, "c")).filter((line) => line.startsWith("Warning"))).toEqual([missing]);
    expect(condition(ground.read(sandboxClaims)[0], "Ready")?.status).toBe("True");
  });

  test("events: bad metadata of a claim is told of with every bad key", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 1));
    const labels = { "kubernetes.io/b": "x", "kubernetes.io/a": "x" };
    await world.applied(sandboxClaims, claim("c", { additionalPodMetadata: { labels } }));
    const [warning = "", ...more] = await told(world, "c");
    expect(more).toEqual([]);
    expect(warning).toMatch(/^Warning InvalidMetadata: .*"kubernetes.io\/a".*"kubernetes.io\/b"/);
  });

  test("events: an adoption that a successor finishes is told and counted", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 1));
    const [member] = ground.read(sandboxes);
    const name = member?.metadata.name ?? "";
    const reserved = claim("c");
    reserved.metadata.annotations = { "agents.x-k8s.io/sandbox-name": name };
    await world.applied(sandboxClaims, reserved);
    expect(await told(world, "c")).toEqual([`Normal SandboxAdopted: Adopted warm pool Sandbox "${name}"`]);
    expect(await metric(world, "agent_sandbox_claim_creation_total")).toBe(1);
  });
});

describe("What dashboards are told", () => {
  test("metrics: a pool that is gone has no size any more", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.client.create(sandboxTemplates, template("tpl"));
    await world.applied(sandboxWarmPools, pool("pool", 2));
    expect(await metric(world, "agent_sandbox_warmpool_size")).toBe(2);
    await world.client.delete(sandboxWarmPools, { namespace, name: "pool" });
    await world.settled();
    for (const name of ["size", "ready", "desired", "held", "stale"])
      expect(await metric(world, `agent_sandbox_warmpool_${name}`)).toBeUndefined();
  });

  test("metrics: what is somebody else's is counted by the step it stands in the way of", async () => {
    await using opened = await open();
    const { world } = opened;
    const container = { name: "main", image: "busybox" };
    await world.client.create(pods, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "a", namespace },
      spec: { containers: [container] },
    });
    await world.client.create(sandboxes, sandbox("a"));
    await world.rested();
    const text = await world.registry.metrics();
    expect(text).toMatch(/agent_sandbox_adoption_refusals_total\{namespace="default",step="pod"\} [1-9]/);
  });
});
