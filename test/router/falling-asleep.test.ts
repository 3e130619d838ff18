import { annotationKeys, pods, sandboxes } from "@agent-sandbox/api";
import type { KubeRequest, Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Ground } from "../simulation/ground.ts";
import { condition, namespace, sandbox } from "../simulation/objects.ts";
import { World } from "../simulation/world.ts";

let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

const idle = { autoSuspension: { inactivityTimeoutSeconds: 60 } };

/** Runs something right before the controllers' first request that matches. */
function before(
  matches: (request: KubeRequest) => boolean,
  act: () => Promise<unknown>,
): (inner: Transport) => Transport {
  let isDone = false;
  return (inner) => ({
    ...inner,
    request: async (request) => {
      if (!isDone && matches(request)) {
        isDone = true;
        await act();
      }
      return inner.request(request);
    },
    upgrade: (request) => inner.upgrade(request),
    close: () => inner.close(),
  });
}

const isAnnouncement = ({ method, path, body = "" }: KubeRequest): boolean =>
  method === "PATCH" && path.includes("/sandboxes/a/status") && body.toString().includes("SandboxSuspended");
const isPodDeletion = ({ method, path }: KubeRequest): boolean => method === "DELETE" && path.includes("/pods/a");

async function reportActivity(world: World): Promise<string | undefined> {
  const at = new Date(world.clock.nowMs()).toISOString();
  const body = { metadata: { annotations: { [annotationKeys.lastActivityAt]: at } } };
  const written = await world.client.patch(sandboxes, { namespace, name: "a" }, { type: "merge", body });
  return condition(written, "Ready")?.reason;
}

test("falling asleep: sleep is announced before the Pod goes", async () => {
  const order: string[] = [];
  const note = (name: string) => async () => void order.push(name);
  const announced = before(isAnnouncement, note("announced"));
  const deleted = before(isPodDeletion, note("deleted"));
  await using world = await World.open({ ground, disturb: (inner) => announced(deleted(inner)) });
  await world.applied(sandboxes, sandbox("a", idle));
  await world.advance(61_000);
  expect(order).toEqual(["announced", "deleted"]);
});

test("falling asleep: activity reported before the announcement keeps the very same Pod", async () => {
  let world: World | undefined;
  const disturb = before(isAnnouncement, () => reportActivity(world as World));
  world = await World.open({ ground, disturb });
  await using opened = world;
  await opened.applied(sandboxes, sandbox("a", idle));
  const uid = (await opened.client.get(pods, { namespace, name: "a" })).metadata.uid;
  await opened.advance(61_000);
  expect((await opened.client.get(pods, { namespace, name: "a" })).metadata.uid).toBe(uid);
  const found = await opened.client.get(sandboxes, { namespace, name: "a" });
  expect(condition(found, "Ready")?.status).toBe("True");
});

test("falling asleep: whoever reports after the announcement is told, and the Sandbox wakes", async () => {
  let world: World | undefined;
  let told: string | undefined;
  const disturb = before(isPodDeletion, async () => {
    told = await reportActivity(world as World);
  });
  world = await World.open({ ground, disturb });
  await using opened = world;
  await opened.applied(sandboxes, sandbox("a", idle));
  await opened.advance(61_000);
  expect(told).toBe("SandboxSuspended");
  await opened.settled();
  expect(condition(await opened.client.get(sandboxes, { namespace, name: "a" }), "Ready")?.status).toBe("True");
});
