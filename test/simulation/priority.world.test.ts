import { sandboxClaims, sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import type { KubeRequest, Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Ground } from "./ground.ts";
import { actionOf, bodyText } from "./logging-transport.ts";
import { claim, condition, pool, template } from "./objects.ts";
import { World } from "./world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

/** A world whose controllers' requests are noted; those until a claim's status says Ready are `before`. */
async function open(replicas: number) {
  const requests: KubeRequest[] = [];
  const disturb = (transport: Transport): Transport => ({
    ...transport,
    request: (request) => {
      requests.push(request);
      return transport.request(request);
    },
  });
  const world = await World.open({ ground, disturb });
  await world.client.create(sandboxTemplates, template("tpl"));
  await world.applied(sandboxWarmPools, pool("pool", replicas));
  const streams = requests.splice(0).filter(({ method }) => method === "GET");
  await world.applied(sandboxClaims, claim("c"));
  const isReadyStatus = (request: KubeRequest): boolean =>
    actionOf(request) === "patch sandboxclaims/status" && /"type":"Ready","status":"True"/.test(bodyText(request));
  const readyAt = requests.findIndex(isReadyStatus);
  expect(readyAt).toBeGreaterThan(0);
  expect(condition(ground.read(sandboxClaims)[0], "Ready")?.status).toBe("True");
  const prioritiesOf = (list: readonly KubeRequest[]): string[] => [
    ...new Set(list.map((request) => `${request.priority} ${actionOf(request)}`)),
  ];
  return {
    streams: prioritiesOf(streams),
    before: prioritiesOf(requests.slice(0, readyAt + 1)),
    after: prioritiesOf(requests.slice(readyAt + 1)),
    [Symbol.asyncDispose]: () => world[Symbol.asyncDispose](),
  };
}

test("priorities: a cold claim: everything it needs before it is Ready is urgent, from the POST of its Sandbox to the last status", async () => {
  await using world = await open(0);
  expect(world.before.filter((each) => !each.endsWith(" events") && !each.endsWith("sandboxwarmpools/status"))).toEqual(
    expect.arrayContaining(["urgent create sandboxes", "urgent create pods", "urgent patch sandboxes/status"]),
  );
  expect(world.before.filter((each) => each.startsWith("background")).sort()).toEqual(["background create events"]);
});

test("priorities: a warm claim: its own writes are urgent, the refill and Events are background", async () => {
  await using world = await open(1);
  expect(world.before).toContain("urgent patch sandboxes");
  expect(world.before).toContain("urgent patch sandboxclaims/status");
  const refill = [...world.before, ...world.after].filter((each) => /create (sandboxes|pods|events)$/.test(each));
  expect([...new Set(refill)].sort()).toEqual([
    "background create events",
    "background create pods",
    "background create sandboxes",
  ]);
});

test("priorities: the lists and watches of informers are streams", async () => {
  await using world = await open(0);
  expect(world.streams.length).toBeGreaterThan(0);
  expect(world.streams.filter((each) => !each.startsWith("stream "))).toEqual([]);
});
