import { once } from "node:events";
import http from "node:http";
import { sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { mintScopedToken } from "../../packages/server/src/router/access/scoped-token.ts";
import type { RouterOptions } from "../../packages/server/src/router/router-options.ts";
import { type Answer, call } from "./http-call.ts";
import { RouterWorld, until } from "./router-world.ts";
import { openUpstream } from "./upstream.ts";

let world: RouterWorld;
let address: string;
let granted: string;
let stranger: string;
const secret = Buffer.from("0123456789abcdef0123456789abcdef");
const vector =
  "v1.eyJucyI6Im5zIiwibmFtZSI6ImJveC1hIiwiZXhwIjoxODkzNDU2MDAwfQ.5B9jEjPUDZ8rB8Sp51Led6tnztRcPP6irxwuhF3nBGw";

beforeAll(async () => {
  world = await RouterWorld.open();
  const router = await world.router();
  address = await world.sandbox(router, "box-a", { namespace: "ns" });
  await openUpstream(world, { address, port: 8888 }, (request, response) => response.end(`ok ${request.url}`));
  granted = await world.token("ns", "friend");
  await world.grantConnect("ns", { kind: "ServiceAccount", name: "friend", namespace: "ns" });
  stranger = await world.token("elsewhere", "stranger");
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

type Ask = (headers?: Record<string, string>, path?: string) => Promise<Answer>;

/** A router with an access mode of its own, and a way to ask it. */
async function openWith(
  access: RouterOptions["access"],
  more: Partial<RouterOptions> = {},
  trust: "credentials" | "insecure" = "credentials",
): Promise<Ask & { port: number }> {
  const router = await world.router({ access, ...more });
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: trust }, undefined, {
    tunnels: access.tunnelNamespaces !== undefined,
  });
  const box = { "X-Sandbox-ID": "box-a", "X-Sandbox-Namespace": "ns" };
  const ask: Ask = (headers = {}, path = "/") => call(port, path, { headers: { ...box, ...headers } });
  return Object.assign(ask, { port });
}

const bearer = (token: string) => ({ Authorization: `Bearer ${token}` });
const keys = { secrets: [secret], publicKeys: new Map() };

test("router access: access review lets through who may connect, and nobody else (G3)", async () => {
  const ask = await openWith({ mode: "access-review" });
  expect(await ask()).toMatchObject({ status: 401, text: '{"detail":"unauthenticated"}\n' });
  expect((await ask()).headers["www-authenticate"]).toBeUndefined();
  expect((await ask(bearer("nonsense"))).status).toBe(401);
  expect((await ask({ Authorization: `Basic ${granted}` })).status).toBe(401);
  expect(await ask(bearer(stranger))).toMatchObject({ status: 403, text: '{"detail":"forbidden"}\n' });
  expect((await ask(bearer(granted))).status).toBe(200);
  expect((await ask({ Authorization: `bearer   ${granted}  ` })).status).toBe(200);
});

test("router access: a stranger learns nothing of what exists", async () => {
  const ask = await openWith({ mode: "access-review" });
  const nothing = { ...bearer(stranger), "X-Sandbox-ID": "not-there" };
  expect((await ask(nothing)).text).toBe((await ask(bearer(stranger))).text);
});

test("router access: what one connection was allowed is not lent to another sandbox or credential", async () => {
  const ask = await openWith({ mode: "access-review" });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const get = (headers: Record<string, string>) => call(ask.port, "/", { agent, headers });
  const box = { "X-Sandbox-ID": "box-a", "X-Sandbox-Namespace": "ns" };
  expect((await get({ ...box, ...bearer(granted) })).status).toBe(200);
  expect((await get({ ...box, ...bearer(granted) })).status).toBe(200);
  expect((await get({ ...box, ...bearer(stranger) })).status).toBe(403);
  expect((await get(box)).status).toBe(401);
  expect((await get({ ...box, ...bearer(granted), "X-Sandbox-Namespace": "elsewhere" })).status).toBe(403);
  agent.destroy();
});

test("router access: token review asks only who it is, as the reference does", async () => {
  const open = await openWith({ mode: "tokenreview", allowTokenless: true });
  expect((await open()).status).toBe(200);
  expect((await open(bearer(stranger))).status).toBe(200);
  expect((await open(bearer("nonsense"))).status).toBe(401);
  const closed = await openWith({ mode: "tokenreview", allowTokenless: false });
  expect((await closed()).status).toBe(401);
});

test("router access: the published vector opens its sandbox and no other (G5)", async () => {
  const ask = await openWith({ mode: "scoped-token", scopedTokenKeys: keys });
  expect((await ask(bearer(vector))).status).toBe(200);
  expect((await ask({ ...bearer(vector), "X-Sandbox-ID": "box-b" })).status).toBe(403);
  expect((await ask({ ...bearer(vector), "X-Sandbox-Namespace": "default" })).status).toBe(403);
  expect((await ask()).status).toBe(401);
  expect((await ask(bearer(granted))).status).toBe(401);
  // G5: published clients send the address they read; it is ignored where it is the sandbox's own.
  expect((await ask({ ...bearer(vector), "X-Sandbox-Pod-IP": address })).status).toBe(200);
});

test("router access: forged, expired and misshapen scoped tokens are 401", async () => {
  const ask = await openWith({ mode: "scoped-token", scopedTokenKeys: keys });
  const nowSeconds = Math.floor(Date.now() / 1000);
  const past = mintScopedToken({ namespace: "ns", name: "box-a", expiresAtSeconds: nowSeconds }, secret);
  const other = mintScopedToken(
    { namespace: "ns", name: "box-a", expiresAtSeconds: nowSeconds + 60 },
    Buffer.alloc(32, 1),
  );
  for (const token of [past, other, vector.replace("v1.", "v3."), `${vector}.x`, vector.slice(0, -2)])
    expect((await ask(bearer(token))).status, token).toBe(401);
});

test("router access: a token for one port opens only that port, on the same connection too", async () => {
  const ask = await openWith({ mode: "access-review", scopedTokenKeys: keys });
  const scope = { namespace: "ns", name: "box-a", expiresAtSeconds: Math.floor(Date.now() / 1000) + 60 };
  const token = mintScopedToken({ ...scope, port: 8888 }, secret);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const get = (sandboxPort: string) =>
    call(ask.port, "/", {
      agent,
      headers: {
        "X-Sandbox-ID": "box-a",
        "X-Sandbox-Namespace": "ns",
        "X-Sandbox-Port": sandboxPort,
        ...bearer(token),
      },
    });
  expect((await get("8888")).status).toBe(200);
  expect((await get("9090")).status).toBe(403);
  agent.destroy();
});

test("router access: a token for one method opens only that method (G6)", async () => {
  const { port } = await openWith({ mode: "scoped-token", scopedTokenKeys: keys });
  const expiresAtSeconds = Math.floor(Date.now() / 1000) + 60;
  const token = mintScopedToken({ namespace: "ns", name: "box-a", expiresAtSeconds, methods: ["GET"] }, secret);
  const headers = { "X-Sandbox-ID": "box-a", "X-Sandbox-Namespace": "ns", ...bearer(token) };
  expect((await call(port, "/", { headers })).status).toBe(200);
  expect((await call(port, "/", { headers, method: "POST" })).status).toBe(403);
});

test("router access: a token for one incarnation opens no other that has its name", async () => {
  const ask = await openWith({ mode: "scoped-token", scopedTokenKeys: keys });
  const scope = { namespace: "ns", name: "box-a", expiresAtSeconds: Math.floor(Date.now() / 1000) + 60 };
  const { uid } = (await world.admin.get(sandboxes, { namespace: "ns", name: "box-a" })).metadata;
  expect((await ask(bearer(mintScopedToken({ ...scope, uid: uid ?? "" }, secret)))).status).toBe(200);
  const former = mintScopedToken({ ...scope, uid: "of-the-one-before" }, secret);
  expect(await ask(bearer(former))).toMatchObject({ status: 401, text: '{"detail":"unauthenticated"}\n' });
  expect((await ask({ ...bearer(former), "X-Sandbox-UID": uid ?? "" })).status).toBe(401);
});

test("router access: a WebSocket ends with the token that opened it (G6)", async () => {
  const { port } = await openWith({ mode: "scoped-token", scopedTokenKeys: keys });
  const sockets = new WebSocketServer({ server: await openUpstream(world, { address, port: 3300 }, () => undefined) });
  world.onClose(async () => sockets.close());
  const expiresAtSeconds = Math.floor(Date.now() / 1000) + 4;
  const token = mintScopedToken({ namespace: "ns", name: "box-a", expiresAtSeconds }, secret);
  const to = { "X-Sandbox-ID": "box-a", "X-Sandbox-Namespace": "ns", "X-Sandbox-Port": "3300" };
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { ...to, ...bearer(token) } });
  const [code, reason] = (await once(socket, "close")) as [number, Buffer];
  expect([code, reason.toString()]).toEqual([1001, "credential expired"]);
  expect(Date.now()).toBeGreaterThanOrEqual(expiresAtSeconds * 1000);
});

test("router access: a static token opens everything, and closes allow-all", async () => {
  const both = await openWith({ mode: "access-review", staticToken: "open sesame" });
  expect((await both(bearer("open sesame"))).status).toBe(200);
  expect((await both(bearer(granted))).status).toBe(200);
  const only = await openWith({ mode: "allow-all", staticToken: "open sesame" });
  expect((await only()).status).toBe(401);
  expect((await only(bearer("open sesam"))).status).toBe(401);
  expect((await only(bearer("open sesame"))).status).toBe(200);
});

test("router access: the insecure listener serves clients without credentials, and no web page", async () => {
  const ask = await openWith({ mode: "access-review" }, {}, "insecure");
  expect((await ask()).status).toBe(200);
  expect((await ask({ Origin: "http://evil.example" })).status).toBe(403);
  expect((await ask({ Origin: "null" })).status).toBe(403);
  expect((await ask({ Host: "rebound.example" })).status).toBe(403);
  expect((await ask({ Origin: `http://127.0.0.1:${ask.port}` })).status).toBe(200);
});

test("router access: the insecure listener can be kept to some namespaces", async () => {
  const ask = await openWith({ mode: "access-review", insecureNamespaces: ["other"] }, {}, "insecure");
  expect((await ask()).status).toBe(403);
});

test("router access: a cluster's tunnels reach the namespaces that a flag names, and nothing without it", async () => {
  const named = await openWith({ mode: "access-review", tunnelNamespaces: ["ns"] });
  expect((await named()).status).toBe(200);
  expect((await named({ "X-Sandbox-Namespace": "default" })).status).toBe(401);
  expect((await named(bearer("nonsense"))).status).toBe(401);
  const none = await openWith({ mode: "access-review" });
  expect((await none()).status).toBe(401);
});

test("router access: a revoked right ends within the memory of the router", async () => {
  const token = await world.token("ns", "brief");
  await world.grantConnect("ns", { kind: "ServiceAccount", name: "brief", namespace: "ns" });
  const ask = await openWith({ mode: "access-review" }, { review: { ttlMs: 200 } });
  expect((await ask(bearer(token))).status).toBe(200);
  await world.admin.raw({
    method: "DELETE",
    path: "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/connect-brief",
  });
  await expect.poll(async () => (await ask(bearer(token))).status, { timeout: 5_000 }).toBe(403);
});

test("router access: a right that was granted a moment ago is noticed soon", async () => {
  const token = await world.token("ns", "later");
  const ask = await openWith({ mode: "access-review" }, { review: { ttlMs: 200 } });
  expect((await ask(bearer(token))).status).toBe(403);
  await world.grantConnect("ns", { kind: "ServiceAccount", name: "later", namespace: "ns" });
  await expect.poll(async () => (await ask(bearer(token))).status, { timeout: 5_000 }).toBe(200);
});

interface Link {
  readonly path: string;
  readonly expiresAt: string;
}

/** What a page's script sends with a request. */
const fetched = { headers: { "Sec-Fetch-Site": "same-origin" } };

async function openLinks(): Promise<{ port: number; link: Link }> {
  const ask = await openWith({ mode: "access-review" }, { linkSecret: secret });
  const body = JSON.stringify({ namespace: "ns", name: "box-a", port: 8888, ttlSeconds: 60 });
  const make = (headers: Record<string, string>) =>
    call(ask.port, "/_agent-sandbox/links", { method: "POST", body, headers });
  expect((await make({})).status).toBe(401);
  expect((await make(bearer(stranger))).status).toBe(403);
  const made = await make(bearer(granted));
  expect(made.status).toBe(201);
  return { port: ask.port, link: JSON.parse(made.text) as Link };
}

test("router access: a signed link is traded for a cookie of its sandbox's path", async () => {
  const { port, link } = await openLinks();
  const first = await call(port, link.path, fetched);
  expect(first).toMatchObject({
    status: 302,
    headers: { location: "/sandboxes/ns/box-a/8888/", "referrer-policy": "no-referrer" },
  });
  const [cookie = ""] = first.headers["set-cookie"] ?? [];
  expect(cookie).toMatch(/; Path=\/sandboxes\/ns\/box-a\/8888; .*HttpOnly; SameSite=Lax/);
  const Cookie = cookie.split(";")[0] ?? "";
  expect((await call(port, "/sandboxes/ns/box-a/8888/app?x=1", { headers: { Cookie } })).text).toBe("ok /app?x=1");
  expect((await call(port, "/sandboxes/ns/box-a/9090/", { headers: { Cookie } })).status).toBe(403);
  expect((await call(port, "/sandboxes/ns/box-b/8888/", { headers: { Cookie } })).status).toBe(403);
  expect((await call(port, "/sandboxes/ns/box-a/8888/")).status).toBe(401);
});

test("router access: a link opens for a program that keeps no cookies, and stays out of what the sandbox sees", async () => {
  const { port, link } = await openLinks();
  const answer = await call(port, link.path.replace("?", "app?x=1&"));
  expect(answer).toMatchObject({ status: 200, text: "ok /app?x=1" });
  expect(answer.headers["set-cookie"]).toBeUndefined();
  // As Node's fetch does.
  const headers = { Accept: "*/*", "Sec-Fetch-Mode": "cors" };
  expect((await call(port, link.path, { headers })).status).toBe(200);
  expect((await call(port, link.path.replace("8888", "9090"))).status).toBe(403);
});

test("router access: a link is for the sandbox it was made for, not for its name", async () => {
  const router = await world.router({ access: { mode: "access-review" }, linkSecret: secret });
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const made = async (name: string) =>
    call(port, "/_agent-sandbox/links", {
      method: "POST",
      body: JSON.stringify({ namespace: "ns", name, port: 8888 }),
      headers: bearer(granted),
    });
  expect(await made("nobody")).toMatchObject({ status: 404, text: '{"detail":"no sandbox ns/nobody"}\n' });
  await world.sandbox(router, "short-lived", { namespace: "ns" });
  const { path } = JSON.parse((await made("short-lived")).text) as Link;
  const [cookie = ""] = (await call(port, path, fetched)).headers["set-cookie"] ?? [];
  await world.admin.delete(sandboxes, { namespace: "ns", name: "short-lived" });
  await until(() => router.table.get("ns", "short-lived") === undefined);
  const again = await world.sandbox(router, "short-lived", { namespace: "ns" });
  await openUpstream(world, { address: again, port: 8888 }, (_request, response) => response.end("of another"));
  const headers = { Cookie: cookie.split(";")[0] ?? "" };
  await expect
    .poll(async () => (await call(port, "/sandboxes/ns/short-lived/8888/", { headers })).status, { timeout: 5_000 })
    .toBe(401);
});

test("router access: neither a link nor its cookie contains the uid that its signature covers", async () => {
  const { port, link } = await openLinks();
  const { uid = "" } = (await world.admin.get(sandboxes, { namespace: "ns", name: "box-a" })).metadata;
  const [cookie = ""] = (await call(port, link.path, fetched)).headers["set-cookie"] ?? [];
  const decoded = `${link.path}.${cookie}`.split(/[.=;]/).map((part) => Buffer.from(part, "base64url").toString());
  expect([link.path, cookie, ...decoded].filter((text) => text.includes(uid))).toEqual([]);
});

test("router access: a link does not live on in links that are made with it", async () => {
  const { port, link } = await openLinks();
  const [cookie = ""] = (await call(port, link.path, fetched)).headers["set-cookie"] ?? [];
  const body = JSON.stringify({ namespace: "ns", name: "box-a", port: 8888, ttlSeconds: 600_000 });
  const make = (headers: Record<string, string>) =>
    call(port, "/_agent-sandbox/links", { method: "POST", body, headers });
  const refusal = { status: 403, text: '{"detail":"a token for one sandbox makes no links"}\n' };
  expect(await make({ Cookie: cookie.split(";")[0] ?? "" })).toMatchObject(refusal);
  expect(
    await make(bearer(new URL(link.path, "http://x").searchParams.get("agent_sandbox_token") ?? "")),
  ).toMatchObject(refusal);
});

test("router access: a browser goes on at a host of the sandbox's own, where its pages are an origin of their own", async () => {
  const { port, link } = await openLinks();
  const page = { Accept: "text/html,*/*" };
  const first = await call(port, link.path.replace("?", "app?x=1&"), { headers: page });
  expect(first.status).toBe(302);
  expect(first.headers["set-cookie"]).toBeUndefined();
  const next = new URL(first.headers.location ?? "", `http://127.0.0.1:${port}`);
  expect(next.host).toBe(`8888-box-a.ns.sandbox.localhost:${port}`);
  expect(next.pathname).toBe("/app");
  const second = await call(port, next.pathname + next.search, { headers: { ...page, Host: next.host } });
  expect(second).toMatchObject({ status: 302, headers: { location: "/app?x=1" } });
  const [cookie = ""] = second.headers["set-cookie"] ?? [];
  const headers = { Cookie: cookie.split(";")[0] ?? "", Host: next.host };
  expect((await call(port, "/app?x=1", { headers })).text).toBe("ok /app?x=1");
  // What a page of a neighbour embeds comes without an origin.
  const embedded = { ...headers, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors" };
  expect((await call(port, "/app", { headers: embedded })).status).toBe(403);
  const followed = { ...headers, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate" };
  expect((await call(port, "/app", { headers: followed })).status).toBe(200);
});

test("router access: a cookie works for its own pages and no page of another site", async () => {
  const { port, link } = await openLinks();
  const [cookie = ""] = (await call(port, link.path, fetched)).headers["set-cookie"] ?? [];
  const Cookie = cookie.split(";")[0] ?? "";
  const post = (Origin: string) =>
    call(port, "/sandboxes/ns/box-a/8888/", { method: "POST", headers: { Cookie, Origin } });
  expect((await post(`http://127.0.0.1:${port}`)).status).toBe(200);
  expect((await post("http://evil.example")).status).toBe(403);
  expect((await post("null")).status).toBe(403);
});

test("router access: a link's WebSocket needs the same origin", async () => {
  const { port, link } = await openLinks();
  const [cookie = ""] = (await call(port, link.path, fetched)).headers["set-cookie"] ?? [];
  const upgrade = async (Origin: string): Promise<number> => {
    const request = http.request({
      port,
      host: "127.0.0.1",
      path: "/sandboxes/ns/box-a/8888/",
      agent: false,
      headers: { Connection: "Upgrade", Upgrade: "websocket", Cookie: cookie.split(";")[0], Origin },
    });
    request.end();
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    response.resume();
    return response.statusCode ?? 0;
  };
  expect(await upgrade("http://evil.example")).toBe(403);
  expect(await upgrade(`http://127.0.0.1:${port}`)).toBe(200);
});

test("router access: a link that was changed or is over is refused", async () => {
  const { port, link } = await openLinks();
  expect((await call(port, link.path.replace("box-a", "box-b"))).status).toBe(403);
  expect((await call(port, `${link.path.slice(0, -3)}AAA`)).status).toBe(401);
});
