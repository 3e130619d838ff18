import { once } from "node:events";
import net from "node:net";
import { createClient, type KubeRequest, type Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import { call } from "../router/http-call.ts";
import { RouterWorld } from "../router/router-world.ts";
import { openRawUpstream } from "../router/upstream.ts";

let world: RouterWorld;
beforeAll(async () => {
  world = await RouterWorld.open();
});
afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

/** The router's way to the API, with what a test does before a request passes. */
function through(before: (request: KubeRequest) => Promise<void>): ReturnType<typeof createClient> {
  const inner = world.api.transportFor(componentUser("sandbox-router"));
  const transport: Transport = {
    request: async (request) => (await before(request), inner.request(request)),
    upgrade: (request) => inner.upgrade(request),
    close: () => inner.close(),
  };
  return createClient(transport);
}

const answerOnce = (socket: net.Socket): void => {
  socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"));
};

test("invariant known-from-memory: an awake sandbox is served and an unknown name refused while the API answers nothing", async () => {
  let isDown = false;
  const asked: string[] = [];
  const client = through(async ({ method, path }) => {
    if (!isDown) return;
    asked.push(`${method} ${path}`);
    await new Promise(() => undefined);
  });
  const router = await world.router({ client });
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const address = await world.sandbox(router, "awake");
  await openRawUpstream(world, { address, port: 8888 }, answerOnce);
  isDown = true;
  expect((await call(port, "/", { headers: { "X-Sandbox-ID": "awake" } })).status).toBe(200);
  expect((await call(port, "/", { headers: { "X-Sandbox-ID": "not-there" } })).status).toBe(404);
  expect(asked).toEqual([]);
});

test("invariant admitted-before-forwarded: a sandbox sees no connection before its caller's review has said yes", async () => {
  const gate = Promise.withResolvers<void>();
  const reviewed = Promise.withResolvers<void>();
  const client = through(async ({ path }) => {
    if (!path.endsWith("reviews")) return;
    reviewed.resolve();
    await gate.promise;
  });
  const router = await world.router({ client, access: { mode: "access-review" } });
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const address = await world.sandbox(router, "guarded");
  let connections = 0;
  await openRawUpstream(world, { address, port: 8888 }, (socket) => {
    connections += 1;
    answerOnce(socket);
  });
  const headers = async (account: string) => ({
    "X-Sandbox-ID": "guarded",
    Authorization: `Bearer ${await world.token("default", account)}`,
  });
  await world.grantConnect("default", { kind: "ServiceAccount", name: "friend", namespace: "default" });
  const [friend, stranger] = [await headers("friend"), await headers("stranger")];
  const answer = call(port, "/", { headers: friend });
  await reviewed.promise;
  // The router has had the request for as long as a connection on loopback takes, and more.
  const probe = net.connect(port, "127.0.0.1");
  await once(probe, "connect");
  probe.destroy();
  expect(connections).toBe(0);
  gate.resolve();
  expect((await answer).status).toBe(200);
  expect(connections).toBe(1);
  expect((await call(port, "/", { headers: stranger })).status).toBe(403);
  expect(connections).toBe(1);
});
