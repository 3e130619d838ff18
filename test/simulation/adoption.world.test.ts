import { setImmediate } from "node:timers/promises";
import type { Sandbox, SandboxClaim } from "@agent-sandbox/api";
import {
  conflict,
  internalError,
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

const reservation = "agents.x-k8s.io/sandbox-name";

/** A world with a pool, whose controllers' requests go through an interceptor. */
async function open(
  replicas = 2,
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
const ownedByClaims = (): Sandbox[] =>
  ground.read(sandboxes).filter(({ metadata }) => metadata.ownerReferences?.[0]?.kind === "SandboxClaim");
const clash = conflict({ resource: "objects", name: "x" }, "the object has been modified");

describe("Adoption under stale views", () => {
  test("adoption: a claim that was judged by a state the watch never shows is judged again", async () => {
    await using opened = await open(1);
    const { world, wire } = opened;
    await world.applied(sandboxClaims, claim("c"));
    const readyPod = (status: "True" | "False") =>
      Promise.all(
        ground
          .read(pods)
          .filter(({ metadata }) => metadata.name === boundTo())
          .map((pod) => {
            const conditions = (pod.status?.conditions ?? []).map((each) =>
              each.type === "Ready" ? { ...each, status } : each,
            );
            return ground.write(pods, pod, { status: { ...pod.status, conditions } });
          }),
      );
    const ready = () => [
      condition(
        ground.read(sandboxes).find(({ metadata }) => metadata.name === boundTo()),
        "Ready",
      )?.status,
      condition(theClaim(), "Ready")?.status,
    ];
    expect(ready()).toEqual(["True", "True"]);
    wire.freeze("sandboxes");
    await readyPod("False");
    await world.rested();
    await world.client.patch(
      sandboxClaims,
      { namespace, name: "c" },
      { type: "merge", body: { metadata: { labels: { poke: "1" } } } },
    );
    await world.rested();
    expect(ready()).toEqual(["False", "False"]);
    await readyPod("True");
    await world.rested();
    expect(ready()).toEqual(["True", "False"]);
    wire.lose("sandboxes");
    await world.advance(5_000);
    expect(ready()).toEqual(["True", "True"]);
  });
  test("adoption: R03 a bound claim leaves the spare member alone", async () => {
    await using opened = await open();
    await opened.world.applied(sandboxClaims, claim("c"));
    const first = boundTo();
    await opened.world.client.patch(
      sandboxClaims,
      { namespace, name: "c" },
      { type: "merge", body: { metadata: { labels: { poke: "1" } } } },
    );
    await opened.world.settled();
    expect(boundTo()).toBe(first);
    expect(ownedByClaims()).toHaveLength(1);
  });

  test("adoption: a cold start without an answer is found before a warm Sandbox is taken", async () => {
    await using opened = await open(1);
    const { world, wire } = opened;
    wire.freeze("sandboxes");
    wire.loseAnswer("create sandboxes");
    await world.client.create(sandboxClaims, claim("c", { startPolicy: "ColdOnly" }));
    const body = { spec: { startPolicy: "WarmOrCold" } };
    wire.before("patch sandboxclaims/status", () =>
      world.client.patch(sandboxClaims, { namespace, name: "c" }, { type: "merge", body }),
    );
    await world.advance(2_000);
    wire.thaw();
    await world.advance(2_000);
    expect(ownedByClaims().map(({ metadata }) => metadata.name)).toEqual(["c"]);
    expect(boundTo()).toBe("c");
  });

  test("adoption: R04, R06 a cache that still shows the pool as owner causes no second transfer", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.freeze("sandboxes");
    await world.applied(sandboxClaims, claim("c"));
    const first = boundTo();
    const transfers = world.writes.filter((write) => actionOf(write) === "patch sandboxes").length;
    for (const poke of ["1", "2", "3"]) {
      const body = { metadata: { labels: { poke } } };
      await world.client.patch(sandboxClaims, { namespace, name: "c" }, { type: "merge", body });
      await world.settled();
    }
    expect(boundTo()).toBe(first);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
    expect(world.writes.filter((write) => actionOf(write) === "patch sandboxes")).toHaveLength(transfers);
    wire.thaw();
    await world.settled();
    expect(ownedByClaims()).toHaveLength(1);
  });

  test("adoption: R05 a restart with a stale cache does not take Ready back", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    await world.applied(sandboxClaims, claim("c"));
    const before = theClaim()?.status;
    await world.stopControllers();
    wire.freeze("sandboxes");
    world.startControllers();
    await world.advance(1_000);
    wire.thaw();
    await world.settled();
    expect(theClaim()?.status).toEqual(before);
  });

  test("adoption: R07, R09 conflicts on reservation and transfer are settled in the same pass", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.refuse("patch sandboxclaims", clash);
    wire.refuse("patch sandboxes", clash);
    await world.applied(sandboxClaims, claim("c"));
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
    expect(world.clock.nowMs()).toBe(ground.clock.nowMs());
    expect(ownedByClaims()).toHaveLength(1);
  });

  test("adoption: R08 a conflict on the transfer does not change the candidate", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.refuse("patch sandboxes", clash);
    await world.applied(sandboxClaims, claim("c"));
    const patched = new Set(
      world.writes.filter((write) => actionOf(write) === "patch sandboxes").map(({ path }) => path),
    );
    expect([...patched].map((path) => path.split("/").at(-1)?.split("?")[0])).toEqual([boundTo()]);
  });

  test("adoption: R10 a transfer that conflicts for ever keeps its reservation and says so", async () => {
    await using opened = await open(1);
    const { world, wire } = opened;
    wire.refuse("patch sandboxes", clash, 5);
    await world.client.create(sandboxClaims, claim("c"));
    await world.rested();
    const reserved = theClaim()?.metadata.annotations?.[reservation];
    expect(reserved).toMatch(/^pool-/);
    const told = world.writes.find((write) => actionOf(write) === "patch sandboxclaims/status")?.body ?? "";
    expect(told).toContain("AdoptionConflict");
    expect(told).not.toContain("the object has been modified");
    expect(wire.count("patch sandboxes")).toBeGreaterThanOrEqual(5);
    await world.advance(2_000);
    expect(boundTo()).toBe(reserved);
  });

  test("adoption: R11 a reserved member that exists only in the cache is given up by the server's word", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    wire.freeze("sandboxes");
    let taken = "";
    wire.before("patch sandboxes", async ({ path }) => {
      taken = path.split("/").at(-1)?.split("?")[0] ?? "";
      const found = ground.read(sandboxes).find(({ metadata }) => metadata.name === taken);
      if (found !== undefined) await ground.write(sandboxes, found, "delete");
    });
    await world.client.create(sandboxClaims, claim("c"));
    await world.rested();
    wire.thaw();
    await world.advance(5_000);
    expect(taken).not.toBe("");
    expect(boundTo()).not.toBe(taken);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
    expect(ownedByClaims()).toHaveLength(1);
  });

  test("adoption: R12 a reservation that cannot be cleared stays, with a short message", async () => {
    await using opened = await open(1);
    const { world, wire } = opened;
    wire.before("patch sandboxes", async () => {
      for (const found of ground.read(sandboxes)) await ground.write(sandboxes, found, "delete");
    });
    wire.before("patch sandboxclaims", async () =>
      wire.refuse("patch sandboxclaims", internalError("secret detail"), 2),
    );
    await world.client.create(sandboxClaims, claim("c"));
    await world.rested();
    expect(theClaim()?.metadata.annotations?.[reservation]).toMatch(/^pool-/);
    expect(condition(theClaim(), "Ready")?.message).not.toContain("secret detail");
    await world.advance(5_000);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
  });

  test("adoption: R13, R14, R15 a pass that is cancelled leaves the reservation and reports nothing", async () => {
    await using opened = await open(1);
    const { world, wire } = opened;
    let stopped: Promise<void> | undefined;
    wire.before("patch sandboxes", async () => {
      stopped = world.stopControllers();
    });
    await world.client.create(sandboxClaims, claim("c"));
    await world.rested();
    await stopped;
    expect(theClaim()?.metadata.annotations?.[reservation]).toMatch(/^pool-/);
    expect(theClaim()?.status).toBeUndefined();
    world.startControllers();
    await world.advance(1_000);
    expect(boundTo()).toBe(theClaim()?.metadata.annotations?.[reservation]);
  });

  test("adoption: R16 a claim that was replaced between look and reservation is not written", async () => {
    await using opened = await open(1);
    const { world, wire } = opened;
    wire.before("patch sandboxclaims", async () => {
      await world.client.delete(sandboxClaims, { namespace, name: "c" });
      await world.client.create(sandboxClaims, claim("c", { startPolicy: "ColdOnly" }));
    });
    await world.client.create(sandboxClaims, claim("c"));
    await world.advance(2_000);
    expect(boundTo()).toBe("c");
    expect(theClaim()?.metadata.annotations?.[reservation]).toBeUndefined();
  });

  test("adoption: R17 a reservation made by another process is finished, not overwritten", async () => {
    await using opened = await open();
    const { world, wire } = opened;
    const names = ground.read(sandboxes).map(({ metadata }) => metadata.name);
    let other = "";
    wire.before("patch sandboxclaims", async ({ body }) => {
      other = names.find((name) => !String(body).includes(name)) ?? "";
      const annotations = { [reservation]: other };
      await world.client.patch(
        sandboxClaims,
        { namespace, name: "c" },
        { type: "merge", body: { metadata: { annotations } } },
      );
    });
    await world.client.create(sandboxClaims, claim("c"));
    await world.advance(2_000);
    expect(boundTo()).toBe(other);
  });

  test("adoption: R18 a reservation of another claim's Sandbox is dropped and its owner untouched", async () => {
    await using opened = await open();
    const { world } = opened;
    await world.applied(sandboxClaims, claim("a"));
    const taken = boundTo("a");
    const late = claim("b");
    await world.applied(sandboxClaims, {
      ...late,
      metadata: { ...late.metadata, annotations: { [reservation]: taken } },
    });
    await world.advance(2_000);
    expect(boundTo("a")).toBe(taken);
    expect(boundTo("b")).not.toBe(taken);
    expect(condition(theClaim("b"), "Ready")?.status).toBe("True");
  });

  test("adoption: R20 a reserved member without an address is adopted all the same", async () => {
    await using opened = await open(0);
    const { world } = opened;
    world.cluster.node.frozen = true;
    await world.client.patch(
      sandboxWarmPools,
      { namespace, name: "pool" },
      { type: "merge", body: { spec: { replicas: 1 } } },
    );
    await world.settled();
    const [member] = ground.read(sandboxes);
    const reserved = member?.metadata.name ?? "";
    const late = claim("c");
    await world.applied(sandboxClaims, {
      ...late,
      metadata: { ...late.metadata, annotations: { [reservation]: reserved } },
    });
    expect(ownedByClaims().map(({ metadata }) => metadata.name)).toEqual([reserved]);
    expect(boundTo()).toBe(reserved);
  });

  test("adoption: R23 a stale member is not taken under Recreate, and is under OnReplenish", async () => {
    for (const type of ["Recreate", "OnReplenish"] as const) {
      await using opened = await open(0);
      const { world } = opened;
      const spec = { replicas: 1, updateStrategy: { type } };
      await world.client.patch(sandboxWarmPools, { namespace, name: "pool" }, { type: "merge", body: { spec } });
      await world.settled();
      const [old] = ground.read(sandboxes);
      await world.stopControllers();
      const body = { spec: { podTemplate: { spec: { containers: [{ name: "main", image: "new" }] } } } };
      await world.client.patch(sandboxTemplates, { namespace, name: "tpl" }, { type: "merge", body });
      await world.client.create(sandboxClaims, claim("c"));
      world.startControllers();
      await world.advance(1_000);
      expect(boundTo() === old?.metadata.name).toBe(type === "OnReplenish");
    }
  });

  test("adoption: R28 whoever sees the adopted Sandbox Ready sees its pod-name annotation", async () => {
    await using opened = await open(1);
    await opened.world.applied(sandboxClaims, claim("c"));
    const taken = ownedByClaims()[0];
    expect(condition(taken, "Ready")?.status).toBe("True");
    expect(taken?.metadata.annotations?.["agents.x-k8s.io/pod-name"]).toBe(taken?.metadata.name);
  });

  test("adoption: N1 a member that a claim takes is not deleted by the pool that decided to", async () => {
    await using opened = await open(1);
    const { world, wire } = opened;
    wire.before("delete sandboxes", async () => {
      await world.client.create(sandboxClaims, claim("c"));
      for (let turn = 0; turn < 1_000 && boundTo() === ""; turn++) await setImmediate();
    });
    await world.client.patch(
      sandboxWarmPools,
      { namespace, name: "pool" },
      { type: "merge", body: { spec: { replicas: 0 } } },
    );
    await world.advance(2_000);
    expect(condition(theClaim(), "Ready")?.status).toBe("True");
    expect(ground.read(sandboxes).map(({ metadata }) => metadata.name)).toEqual([boundTo()]);
  });

  test("adoption: N6 metadata that contradicts the template is refused before anything is reserved", async () => {
    await using opened = await open(1);
    const { world } = opened;
    const metadata = { labels: { "sandbox.users.io/team": "a" } };
    await world.client.patch(
      sandboxTemplates,
      { namespace, name: "tpl" },
      { type: "merge", body: { spec: { podTemplate: { metadata } } } },
    );
    await world.settled();
    const additionalPodMetadata = { labels: { "sandbox.users.io/team": "b" } };
    await world.applied(sandboxClaims, claim("c", { additionalPodMetadata }));
    expect(condition(theClaim(), "Ready")?.reason).toBe("InvalidMetadata");
    expect(theClaim()?.metadata.annotations?.[reservation]).toBeUndefined();
  });

  test("adoption: N7 a member adopted before the pool saw its creation is replaced once", async () => {
    await using opened = await open(0);
    const { world, wire } = opened;
    wire.freeze("sandboxes");
    await world.client.patch(
      sandboxWarmPools,
      { namespace, name: "pool" },
      { type: "merge", body: { spec: { replicas: 1 } } },
    );
    await world.rested();
    await world.client.create(sandboxClaims, claim("c"));
    await world.rested();
    wire.thaw();
    await world.advance(5_000);
    expect(ownedByClaims()).toHaveLength(1);
    expect(ground.read(sandboxes)).toHaveLength(2);
  });
});
