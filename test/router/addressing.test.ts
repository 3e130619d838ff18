import { controllerReference, sandboxes, sandboxWarmPools } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call, seen } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { echo, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter;
let port: number;
let address: string;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router();
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  address = await world.sandbox(router, "box", { namespace: "team-a" });
  await openUpstream(world, { address, port: 8888 }, echo);
  await openUpstream(world, { address, port: 3000 }, echo);
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const box = { "X-Sandbox-ID": "box", "X-Sandbox-Namespace": "team-a" };

const refusals: readonly (readonly [string, Record<string, string>, string])[] = [
  ["no id", {}, "X-Sandbox-ID header is required."],
  ["an empty id", { "X-Sandbox-ID": "" }, "X-Sandbox-ID header is required."],
  ["an id with capitals", { "X-Sandbox-ID": "Box" }, "Invalid sandbox ID format."],
  ["an id with a dot", { "X-Sandbox-ID": "a.b" }, "Invalid sandbox ID format."],
  [
    "an id and then a bad namespace",
    { "X-Sandbox-ID": "a", "X-Sandbox-Namespace": "a_b" },
    "Invalid namespace format.",
  ],
  ["a port of words", { ...box, "X-Sandbox-Port": "http" }, "Invalid port format."],
  ["port 65536", { ...box, "X-Sandbox-Port": "65536" }, "Invalid port format."],
  ["a negative port", { ...box, "X-Sandbox-Port": "-1" }, "Invalid port format."],
  ["a pod IP with port", { ...box, "X-Sandbox-Pod-IP": "10.0.0.1:80" }, "Invalid target IP address."],
  ["a pod IP in brackets", { ...box, "X-Sandbox-Pod-IP": "[::1]" }, "Invalid target IP address."],
  ["a pod IP with zone", { ...box, "X-Sandbox-Pod-IP": "fe80::1%eth0" }, "Invalid target IP address."],
  ["a pod IP with leading zeros", { ...box, "X-Sandbox-Pod-IP": "010.0.0.1" }, "Invalid target IP address."],
  ["the unspecified address", { ...box, "X-Sandbox-Pod-IP": "0.0.0.0" }, "Invalid target IP address."],
  ["a link-local address", { ...box, "X-Sandbox-Pod-IP": "169.254.169.254" }, "Invalid target IP address."],
  ["a multicast address", { ...box, "X-Sandbox-Pod-IP": "ff02::1" }, "Invalid target IP address."],
];

test.each(refusals)("router addressing: %s is 400 with the reference's text", async (_name, headers, detail) => {
  const answer = await call(port, "/x", { headers });
  expect(answer.status).toBe(400);
  expect(answer.headers["content-type"]).toBe("application/json");
  expect(answer.text).toBe(`${JSON.stringify({ detail })}\n`);
});

test("router addressing: the id is judged before namespace, port and address", async () => {
  const headers = { "X-Sandbox-ID": "A", "X-Sandbox-Namespace": "B_", "X-Sandbox-Port": "x", "X-Sandbox-Pod-IP": "y" };
  expect((await call(port, "/", { headers })).text).toContain("Invalid sandbox ID format.");
});

test("router addressing: headers reach the default port", async () => {
  expect((await call(port, "/", { headers: box })).status).toBe(200);
});

test("router addressing: header names in any case, plus and zeros before a port", async () => {
  const headers = { "x-SANDBOX-id": "box", "x-sandbox-NAMESPACE": "team-a", "X-Sandbox-Port": "+03000" };
  expect(seen(await call(port, "/p", { headers })).headers.host).toBe(`${address}:3000`);
});

test("router addressing: a host name below the domain (G7)", async () => {
  const answer = await call(port, "/p?q=1", { headers: { Host: `3000-box.team-a.sandbox.localhost:${port}` } });
  expect(seen(answer)).toMatchObject({ url: "/p?q=1", headers: { host: `${address}:3000` } });
});

test("router addressing: a path below the prefix", async () => {
  expect(seen(await call(port, "/sandboxes/team-a/box/3000/deep%2Fer/?q=%20")).url).toBe("/deep%2Fer/?q=%20");
});

test("router addressing: a malformed path of ours never falls back to headers", async () => {
  expect((await call(port, "/sandboxes/team-a/box", { headers: box })).status).toBe(400);
});

test("router addressing: an unknown sandbox is 404, quickly", async () => {
  const startMs = performance.now();
  const answer = await call(port, "/", { headers: { "X-Sandbox-ID": "nobody" } });
  expect(answer).toMatchObject({ status: 404, text: '{"detail":"no sandbox default/nobody"}\n' });
  expect(performance.now() - startMs).toBeLessThan(100);
});

test("router addressing: health is the router's own only where no sandbox is named (G22)", async () => {
  expect((await call(port, "/healthz")).text).toBe('{"status":"ok"}');
  expect((await call(port, "/healthz", { method: "POST" })).status).toBe(200);
  expect(seen(await call(port, "/healthz", { headers: box })).url).toBe("/healthz");
});

test("router addressing: an unclaimed member of a pool cannot be reached by its name", async () => {
  const pool = await world.admin.create(sandboxWarmPools, {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: { namespace: "default", name: "pool" },
    spec: { replicas: 0, sandboxTemplateRef: { name: "none" } },
  });
  await world.sandbox(router, "pooled", { labels: { "agents.x-k8s.io/warm-pool-sandbox": "hash" } });
  const key = { namespace: "default", name: "pooled" };
  const owned = { metadata: { ownerReferences: [controllerReference(sandboxWarmPools, pool)] } };
  await world.admin.patch(sandboxes, key, { type: "merge", body: owned });
  await expect.poll(async () => (await call(port, "/", { headers: { "X-Sandbox-ID": "pooled" } })).status).toBe(404);
  // Adoption changes the owner; from then on the name leads there.
  await world.admin.patch(sandboxes, key, { type: "merge", body: { metadata: { ownerReferences: null } } });
  await expect.poll(async () => (await call(port, "/", { headers: { "X-Sandbox-ID": "pooled" } })).status).toBe(502);
});

test("router addressing: a pod IP that is the sandbox's own is used, another one is ignored (G4)", async () => {
  const [first, second] = [world.address(), world.address()];
  await world.sandbox(router, "two", { addresses: [first, second] });
  await openUpstream(world, { address: first, port: 8888 }, (_request, response) => response.end("first"));
  await openUpstream(world, { address: second, port: 8888 }, (_request, response) => response.end("second"));
  const ask = async (ip: string) =>
    (await call(port, "/", { headers: { "X-Sandbox-ID": "two", "X-Sandbox-Pod-IP": ip } })).text;
  expect(await ask(second)).toBe("second");
  expect(await ask(first)).toBe("first");
  // K21: a stale hint is never a reason to refuse, and never a way to somebody else's port.
  expect(await ask(address)).toBe("first");
});

test("router addressing: a UID of another incarnation is refused", async () => {
  const headers = { ...box, "X-Sandbox-UID": "00000000-0000-0000-0000-000000000000" };
  expect((await call(port, "/", { headers })).status).toBe(403);
  const uid = router.table.get("team-a", "box")?.uid ?? "";
  expect((await call(port, "/", { headers: { ...box, "X-Sandbox-UID": uid } })).status).toBe(200);
});
