import { sandboxClaims, sandboxes, sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { claim, condition, pool, sandbox, template } from "./objects.ts";
import { World } from "./world.ts";

test("world: a Sandbox becomes Ready with its Pod", async () => {
  await using world = await World.open();
  const t0 = performance.now();
  await world.applied(sandboxes, sandbox("a"));
  const [made] = await world.sandboxes();
  console.log(
    performance.now() - t0,
    JSON.stringify(made?.status),
    world.writes.map((w) => [w.method, w.path, w.status]),
  );
  expect(condition(made, "Ready")).toMatchObject({
    status: "True",
    reason: "DependenciesReady",
    message: "Pod is Ready",
  });
});

test("world: a warm claim costs five requests, three before it is Ready", async () => {
  await using world = await World.open();
  await world.client.create(sandboxTemplates, template("tpl"));
  await world.applied(sandboxWarmPools, pool("pool", 2));
  console.log(world.writes.map((w) => [w.method, w.path, w.status]));
  world.writes.length = 0;
  await world.applied(sandboxClaims, claim("c"));
  console.log(world.writes.map((w) => [w.method, w.path, w.status, w.body.slice(0, 300)]));
  console.log(JSON.stringify((await world.claims())[0]?.status));
});
