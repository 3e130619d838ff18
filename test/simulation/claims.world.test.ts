import type { SandboxClaim } from "@agent-sandbox/api";
import {
  internalError,
  networkPolicies,
  pods,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { Interceptor } from "./interceptor.ts";
import { actionOf } from "./logging-transport.ts";
import { claim, condition, namespace, pool, template } from "./objects.ts";
import { World, type WorldOptions } from "./world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

async function open(
  replicas = 1,
  options: WorldOptions = {},
): Promise<{ world: World; wire: Interceptor } & AsyncDisposable> {
  const wire = new Interceptor();
  const world = await World.open({ ground, disturb: wire.wrap, ...options });
  await world.client.create(sandboxTemplates, template("tpl"));
  await world.applied(sandboxWarmPools, pool("pool", replicas));
  world.writes.length = 0;
  wire.seen.length = 0;
  return { world, wire, [Symbol.asyncDispose]: () => world[Symbol.asyncDispose]() };
}

const theClaim = (name = "c"): SandboxClaim | undefined =>
  ground.read(sandboxClaims).find(({ metadata }) => metadata.name === name);
const boundTo = (name = "c"): string => theClaim(name)?.status?.sandbox?.name ?? "";
const label = (world: World, name: string, labels: object) =>
  world.client.patch(sandboxClaims, { namespace, name }, { type: "merge", body: { metadata: { labels } } });
/** The number of samples of a histogram, or the value of a counter, over all its labels. */
const sum = async (world: World, metric: string): Promise<number> => {
  const lines = (await world.registry.metrics()).split("\n").filter((line) => line.startsWith(`${metric}{`));
  return lines.reduce((total, line) => total + Number(line.split(" ").at(-1)), 0);
};
/** Passes over claims so far. */
const passes = async (world: World): Promise<number> =>
  (await world.registry.metrics())
    .split("\n")
    .filter((line) => line.includes('controller_runtime_reconcile_total{controller="sandboxclaim"'))
    .reduce((total, line) => total + Number(line.split(" ").at(-1)), 0);
const startup = "agent_sandbox_claim_controller_startup_latency_ms_count";

describe("Claims: status and metrics", () => {
  test("claims: R29, R30 a status against an old version is dropped, costs no sample and heals", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.before("patch sandboxclaims/status", () => label(world, "c", { edited: "1" }));
    await world.applied(sandboxClaims, claim("c"));
    await world.advance(2_000);
    const statuses = world.writes.filter((write) => actionOf(write) === "patch sandboxclaims/status");
    expect(statuses[0]?.status).toBe(409);
    expect(statuses.every(({ body }) => body.includes("resourceVersion"))).toBe(true);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
    expect(await sum(world, startup)).toBe(1);
  });

  test("claims: R31 a cold create whose answer was lost is found again, not made twice", async () => {
    await using opened = await open(0);
    const { world, wire } = opened;
    wire.freeze("sandboxes");
    wire.loseAnswer("create sandboxes");
    await world.client.create(sandboxClaims, claim("c"));
    await world.advance(1_000);
    wire.thaw();
    await world.advance(1_000);
    expect(ground.read(sandboxes).map(({ metadata }) => metadata.name)).toEqual(["c"]);
    expect(boundTo()).toBe("c");
  });

  test("claims: R32 a failing read or patch keeps the binding", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxClaims, claim("c"));
    const before = boundTo();
    wire.refuse("patch sandboxes", internalError("injected"), 3);
    await label(world, "c", { "agents.x-k8s.io/created-by": "go-client" });
    await world.rested();
    expect(boundTo()).toBe(before);
    await world.advance(5_000);
    expect(boundTo()).toBe(before);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
  });

  test("claims: an expiry that is judged by an old view is not written again and again", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    const lifecycle = { ttlSecondsAfterFinished: 0, shutdownPolicy: "Retain" as const };
    await world.applied(sandboxClaims, claim("c", { lifecycle }));
    wire.freeze("sandboxclaims");
    await label(world, "c", { newer: "true" });
    world.writes.length = 0;
    world.cluster.node.ends = ({ metadata }) => (metadata.name === boundTo() ? "Failed" : undefined);
    await world.cluster.step();
    await world.advance(500);
    const tries = world.writes.filter((write) => actionOf(write) === "patch sandboxclaims/status");
    expect(tries.length).toBeGreaterThan(0);
    expect(tries.length).toBeLessThan(5);
    wire.thaw();
    await world.advance(2_000);
    expect(condition(theClaim(), "Ready")?.reason).toBe("ClaimExpired");
  });

  test("claims: R33 TTL 0 ends a claim in the pass that sees its Sandbox finished, and Retain keeps Finished", async () => {
    await using opened = await open(0);
    const { world } = opened;
    world.cluster.node.ends = () => "Succeeded";
    const lifecycle = { ttlSecondsAfterFinished: 0, shutdownPolicy: "Retain" as const };
    await world.applied(sandboxClaims, claim("c", { lifecycle }));
    await world.advance(1_000);
    expect(condition(theClaim(), "Ready")?.reason).toBe("ClaimExpired");
    expect(condition(theClaim(), "Finished")?.reason).toBe("PodSucceeded");
    expect(ground.read(sandboxes)).toEqual([]);
  });

  test("claims: R35 flaps, restarts and suspension observe a claim's latency once", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxClaims, claim("c"));
    const [sandbox] = ground.read(sandboxes).filter(({ metadata }) => metadata.name === boundTo());
    const key = { namespace, name: sandbox?.metadata.name ?? "" };
    for (const operatingMode of ["Suspended", "Running"] as const) {
      await world.client.patch(sandboxes, key, { type: "merge", body: { spec: { operatingMode } } });
      await world.settled();
    }
    await world.stopControllers();
    world.startControllers();
    await world.advance(1_000);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
    expect(await sum(world, startup)).toBe(1);
    expect(await sum(world, "agent_sandbox_claim_creation_total")).toBe(1);
  });

  test("claims: R36 a claim that was recreated under its name is measured again", async () => {
    await using opened = await open(2);
    const { world, wire } = opened;
    await world.applied(sandboxClaims, claim("c"));
    wire.freeze("sandboxclaims");
    await world.client.delete(sandboxClaims, { namespace, name: "c" });
    await world.client.create(sandboxClaims, claim("c"));
    await world.rested();
    wire.thaw();
    await world.advance(2_000);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
    expect(await sum(world, startup)).toBe(2);
  });

  test("claims: R37 a Sandbox's Ready reason reaches the claim, other conditions wake nobody", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxClaims, claim("c"));
    const found = ground.read(sandboxes).find(({ metadata }) => metadata.name === boundTo());
    if (found === undefined) throw new Error("no sandbox is bound");
    const before = await passes(world);
    const other = {
      type: "Custom",
      status: "True" as const,
      reason: "R",
      message: "",
      lastTransitionTime: "2026-01-01T00:00:00Z",
    };
    await world.client.patch(
      sandboxes,
      { namespace, name: found.metadata.name },
      { type: "merge", body: { status: { conditions: [...(found.status?.conditions ?? []), other] } } },
      { subresource: "status" },
    );
    await world.rested();
    expect(await passes(world)).toBe(before);
    const [pod] = ground.read(pods).filter(({ metadata }) => metadata.name === found.metadata.name);
    if (pod !== undefined) await ground.write(pods, pod, { status: { ...pod.status, phase: "Failed" } });
    await world.rested();
    expect(condition(theClaim(), "Ready")?.reason).toBe("PodFailed");
  });

  test("claims: R38 a pool's status wakes no claim, its spec wakes the unbound", async () => {
    await using opened = await open(0);
    const { world } = opened;
    await world.applied(sandboxClaims, claim("c", { startPolicy: "WarmOnly" }));
    const before = await passes(world);
    const key = { namespace, name: "pool" };
    await world.client.patch(
      sandboxWarmPools,
      key,
      { type: "merge", body: { status: { replicas: 7 } } },
      { subresource: "status" },
    );
    await world.rested();
    expect(await passes(world)).toBe(before);
    await world.client.patch(sandboxWarmPools, key, { type: "merge", body: { spec: { replicas: 1 } } });
    await world.settled();
    expect(await passes(world)).toBeGreaterThan(before);
    expect(boundTo()).toMatch(/^pool-/);
  });

  test("claims: R41 a user's policy of the old name stays, the controller's own goes", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxClaims, claim("c"));
    const { uid = "" } = theClaim()?.metadata ?? {};
    const policy = (name: string, owned: boolean) => ({
      apiVersion: "networking.k8s.io/v1" as const,
      kind: "NetworkPolicy" as const,
      metadata: {
        name: `${name}-network-policy`,
        namespace,
        ...(owned
          ? {
              ownerReferences: [
                { apiVersion: "extensions.agents.x-k8s.io/v1beta1", kind: "SandboxClaim", name, uid, controller: true },
              ],
            }
          : {}),
      },
      spec: { podSelector: {} },
    });
    await world.client.create(networkPolicies, policy("c", true));
    await world.applied(sandboxClaims, claim("d"));
    await world.client.create(networkPolicies, policy("d", false));
    await label(world, "c", { poke: "1" });
    await label(world, "d", { poke: "1" });
    await world.settled();
    const left = ground.read(networkPolicies).map(({ metadata }) => metadata.name);
    expect(left).toContain("d-network-policy");
    expect(left).not.toContain("c-network-policy");
  });

  test("claims: R42 without the observability flags a warm claim costs four requests", async () => {
    await using opened = await open(1, { config: { claimEvents: false, claimObservabilityAnnotations: false } });
    const { world } = opened;
    await world.applied(sandboxClaims, claim("c"));
    const bound = boundTo();
    const mine = world.writes.filter(({ path }) => path.includes(bound) || path.includes("sandboxclaims/c"));
    expect(mine.map(actionOf).sort()).toEqual([
      "patch pods",
      "patch sandboxclaims",
      "patch sandboxclaims/status",
      "patch sandboxes",
    ]);
    expect(Object.keys(theClaim()?.metadata.annotations ?? {})).toEqual(["agents.x-k8s.io/sandbox-name"]);
  });
});
