import { sandboxClaims, sandboxes, sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { claim, namespace, pool, sandbox, template } from "../simulation/objects.ts";
import { World } from "../simulation/world.ts";

test("invariant deletes-carry-the-uid: no controller deletes by name alone", async () => {
  await using world = await World.open();
  const inSeconds = (seconds: number): string => new Date(world.clock.nowMs() + seconds * 1000).toISOString();
  await world.applied(sandboxTemplates, template("tpl"));
  await world.applied(sandboxWarmPools, pool("pool", 3));
  // By suspension, by expiry of both policies, by a smaller pool and by the end of a claim.
  await world.applied(sandboxes, sandbox("sleeper", { service: true }));
  await world.applied(sandboxes, sandbox("kept", { service: true, shutdownTime: inSeconds(5) }));
  await world.applied(sandboxes, sandbox("gone", { shutdownPolicy: "Delete", shutdownTime: inSeconds(5) }));
  const lifecycle = { shutdownTime: inSeconds(5), shutdownPolicy: "Delete" as const };
  await world.applied(sandboxClaims, claim("over", { lifecycle }));
  const patch = (body: object) => ({ type: "merge" as const, body });
  await world.client.patch(sandboxes, { namespace, name: "sleeper" }, patch({ spec: { operatingMode: "Suspended" } }));
  await world.client.patch(sandboxWarmPools, { namespace, name: "pool" }, patch({ spec: { replicas: 1 } }));
  await world.settled();
  await world.advance(20_000);
  const deletes = world.writes.filter(({ method }) => method === "DELETE");
  const kinds = new Set(deletes.map(({ path }) => /\/([a-z]+)\/[^/]+$/.exec(path)?.[1] ?? path));
  expect([...kinds].toSorted((a, b) => a.localeCompare(b))).toEqual(["pods", "sandboxclaims", "sandboxes", "services"]);
  const uidOf = (body: string) => (JSON.parse(body || "{}") as { preconditions?: { uid?: string } }).preconditions?.uid;
  expect(deletes.filter(({ body }) => !/^[0-9a-f-]{36}$/.test(uidOf(body) ?? ""))).toEqual([]);
});
