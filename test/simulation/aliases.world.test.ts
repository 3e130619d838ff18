import type { SandboxClaimAlias, SandboxTemplateAlias, SandboxWarmPoolAlias } from "@agent-sandbox/api";
import {
  events,
  sandboxClaimAliases,
  sandboxClaims,
  sandboxes,
  sandboxTemplateAliases,
  sandboxTemplates,
  sandboxWarmPoolAliases,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import type { Transport } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { condition, namespace, sandbox, template } from "./objects.ts";
import { World } from "./world.ts";

const apiVersion = "agents.x-k8s.io/v1alpha1";

function templateAlias(name: string, image = "busybox"): SandboxTemplateAlias {
  const spec = { template: { spec: { containers: [{ name: "main", image }] } } };
  return { apiVersion, kind: "SandboxTemplate", metadata: { name, namespace }, spec };
}

function claimAlias(name: string): SandboxClaimAlias {
  return { apiVersion, kind: "SandboxClaim", metadata: { name, namespace }, spec: { template: "tpl" } };
}

function poolAlias(name: string, size: number): SandboxWarmPoolAlias {
  return { apiVersion, kind: "SandboxWarmPool", metadata: { name, namespace }, spec: { size, template: "tpl" } };
}

test("aliases: a claim waits for its template, then starts cold", async () => {
  await using world = await World.open();
  await world.applied(sandboxClaimAliases, claimAlias("c"));
  const waiting = await world.client.get(sandboxClaimAliases, { namespace, name: "c" });
  expect(condition(waiting, "Ready")).toMatchObject({ status: "False", reason: "TemplateNotFound" });
  await world.applied(sandboxTemplateAliases, templateAlias("tpl"));
  const served = await world.client.get(sandboxClaimAliases, { namespace, name: "c" });
  expect(condition(served, "Ready")).toMatchObject({ status: "True" });
  expect(served.status?.sandbox?.name).toBe("c");
});

test("aliases: a claim takes a member of its template's pool", async () => {
  await using world = await World.open();
  await world.applied(sandboxTemplateAliases, templateAlias("tpl"));
  await world.applied(sandboxWarmPoolAliases, poolAlias("warm", 2));
  await world.advance(1_000);
  const pool = await world.client.get(sandboxWarmPoolAliases, { namespace, name: "warm" });
  expect(pool.status).toMatchObject({ readyReplicas: 2 });
  await world.applied(sandboxClaimAliases, claimAlias("c"));
  const claim = await world.client.get(sandboxClaimAliases, { namespace, name: "c" });
  expect(claim.status?.sandbox?.name).toMatch(/^warm-/);
});

test("aliases: a change reaches the object, and a change of the object itself stays", async () => {
  await using world = await World.open();
  await world.applied(sandboxTemplateAliases, templateAlias("tpl"));
  await world.applied(sandboxWarmPoolAliases, poolAlias("warm", 1));
  const key = { namespace, name: "warm" };
  const replicas = async () => (await world.client.get(sandboxWarmPools, key)).spec.replicas;
  await world.client.patch(sandboxWarmPools, key, { type: "merge", body: { spec: { replicas: 2 } } });
  await world.settled();
  expect(await replicas()).toBe(2);
  await world.client.patch(sandboxWarmPoolAliases, key, { type: "merge", body: { spec: { size: 3 } } });
  await world.settled();
  expect(await replicas()).toBe(3);
});

test("aliases: a stranger's object of that name is left alone, in words, and taken note of when it goes", async () => {
  await using world = await World.open();
  const theirs = await world.applied(sandboxTemplates, template("tpl"));
  await world.applied(sandboxTemplateAliases, templateAlias("tpl", "evil"));
  const key = { namespace, name: "tpl" };
  const refused = await world.client.get(sandboxTemplateAliases, key);
  expect(condition(refused, "Translated")).toMatchObject({ status: "False", reason: "NameTaken" });
  expect((await world.client.get(sandboxTemplates, key)).spec).toEqual(theirs.spec);
  const notes = (await world.client.list(events)).items.filter(({ reason }) => reason === "NameTaken");
  expect(notes).toMatchObject([{ type: "Warning", regarding: { apiVersion, kind: "SandboxTemplate", name: "tpl" } }]);
  await world.client.delete(sandboxTemplates, key);
  await world.settled();
  const translated = await world.client.get(sandboxTemplateAliases, key);
  expect(condition(translated, "Translated")).toMatchObject({ status: "True" });
});

test("aliases: the end of the object is the end of its alias, and nothing is made again", async () => {
  await using world = await World.open();
  await world.applied(sandboxTemplateAliases, templateAlias("tpl"));
  await world.applied(sandboxClaimAliases, claimAlias("c"));
  await world.client.delete(sandboxClaims, { namespace, name: "c" });
  await world.settled();
  expect(world.ground.read(sandboxClaimAliases)).toEqual([]);
  expect(await world.claims()).toEqual([]);
});

test("aliases: where these kinds are not served, Sandboxes run all the same", async () => {
  const unserved = (transport: Transport): Transport => ({
    request: (request) => transport.request({ ...request, path: request.path.replace(/aliases/, "unknown") }),
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  });
  await using world = await World.open({ disturb: unserved });
  await world.applied(sandboxes, sandbox("box"));
  expect(condition(await world.client.get(sandboxes, { namespace, name: "box" }), "Ready")?.status).toBe("True");
});
