import { once } from "node:events";
import type http from "node:http";
import net from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call, exchangeRaw } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { openRawUpstream, openUpstream } from "./upstream.ts";

/** The port that vite listens on, on the loopback address of its machine only. */
const vitePort = 5173;
/** Stands for the loopback address inside the sandbox, which the router cannot dial. */
const inside = "127.14.0.1";
const daemonPort = 49_900;

let world: RouterWorld;
let router: OpenedRouter;
let port: number;
let token: string;
let hotReloads: WebSocketServer;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router({ access: { mode: "access-review" }, linkSecret: Buffer.alloc(32, 7) });
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const address = await world.sandbox(router, "web");
  await openDaemon(address);
  await openDevServer();
  await world.grantConnect("default", { kind: "ServiceAccount", name: "dev", namespace: "default" });
  token = await world.token("default", "dev");
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

/** A dev server as vite is one: pages, and a WebSocket on the same port that tells them what has changed. */
async function openDevServer(): Promise<void> {
  const server = await openUpstream(world, { address: inside, port: vitePort }, (request, response) => {
    response.writeHead(200, { "Content-Type": "text/html" }).end(`page ${request.url}`);
  });
  hotReloads = new WebSocketServer({ server, handleProtocols: () => "vite-hmr" });
  world.onClose(async () => hotReloads.close());
}

/** The part of sandboxd that dials inside; sandboxd's own tests show that it does the same. */
async function openDaemon(address: string): Promise<void> {
  const server = await openUpstream(world, { address, port: daemonPort }, (_request, response) => {
    response.writeHead(200).end("the daemon");
  });
  server.on("upgrade", (request: http.IncomingMessage, socket: net.Socket) => {
    const wanted = Number(/^\/v1\/dial\/(\d+)$/.exec(request.url ?? "")?.[1]);
    const target = net.connect(wanted, inside);
    socket.on("error", () => target.destroy());
    target.once("error", () => socket.end("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"));
    target.once("connect", () => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
      socket.pipe(target).pipe(socket);
    });
  });
}

const bearer = (): { Authorization: string } => ({ Authorization: `Bearer ${token}` });
const to = (sandboxPort: number) => ({ "X-Sandbox-ID": "web", "X-Sandbox-Port": String(sandboxPort), ...bearer() });

interface Link {
  readonly path: string;
  readonly host: string;
  readonly hostPath: string;
}

async function link(): Promise<Link> {
  const body = JSON.stringify({ namespace: "default", name: "web", port: vitePort });
  const answer = await call(port, "/_agent-sandbox/links", { method: "POST", body, headers: bearer() });
  return JSON.parse(answer.text) as Link;
}

/** Follows a link as a browser does, and returns the cookie it got for it. */
async function visit(path: string, headers: Record<string, string> = {}): Promise<string> {
  const answer = await call(port, path, { headers: { "Sec-Fetch-Site": "same-origin", ...headers } });
  expect(answer.status).toBe(302);
  return (answer.headers["set-cookie"]?.[0] ?? "").split(";")[0] ?? "";
}

/** Opens the page's WebSocket and resolves with the first message and the subprotocol. */
async function hotReload(path: string, headers: Record<string, string>): Promise<{ text: string; protocol: string }> {
  hotReloads.once("connection", (connection) => connection.send('{"type":"connected"}'));
  const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, ["vite-hmr"], { headers });
  const [message] = (await once(socket, "message")) as [Buffer];
  const { protocol } = socket;
  socket.close();
  await once(socket, "close");
  return { text: message.toString(), protocol };
}

test("dev server: a listener on the sandbox's loopback address is reached through its daemon, with a body", async () => {
  const answer = await call(port, "/main.ts?t=1", { headers: to(vitePort), method: "POST", body: "x".repeat(100_000) });
  expect(answer).toMatchObject({ status: 200, text: "page /main.ts?t=1" });
});

test("dev server: connections through the daemon are kept", async () => {
  let connections = 0;
  await openRawUpstream(world, { address: inside, port: 5174 }, (socket) => {
    connections += 1;
    socket.on("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
  });
  for (let round = 0; round < 3; round += 1) expect((await call(port, "/", { headers: to(5174) })).text).toBe("ok");
  expect(connections).toBe(1);
});

test("dev server: a signed link, its cookie and the page's WebSocket work by path", async () => {
  const { path } = await link();
  const Cookie = await visit(path);
  const base = path.split("?")[0] ?? "";
  expect((await call(port, `${base}src/app.ts`, { headers: { Cookie } })).text).toBe("page /src/app.ts");
  const Origin = `http://127.0.0.1:${port}`;
  const connected = { text: '{"type":"connected"}', protocol: "vite-hmr" };
  expect(await hotReload(base, { Cookie, Origin })).toEqual(connected);
});

test("dev server: pages that name their parts by absolute paths work under a host of their own", async () => {
  const { host, hostPath } = await link();
  expect(host).toBe(`${vitePort}-web.default.sandbox.localhost`);
  const Host = `${host}:${port}`;
  const Cookie = await visit(hostPath, { Host });
  expect((await call(port, "/@vite/client", { headers: { Host, Cookie } })).text).toBe("page /@vite/client");
  const connected = { text: '{"type":"connected"}', protocol: "vite-hmr" };
  expect(await hotReload("/", { Host, Cookie, Origin: `http://${Host}` })).toEqual(connected);
});

test("dev server: a page of another site gets no WebSocket with a visitor's cookie", async () => {
  const { host, hostPath } = await link();
  const Host = `${host}:${port}`;
  const Cookie = await visit(hostPath, { Host });
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { Host, Cookie, Origin: "http://evil.example" } });
  socket.on("error", () => undefined);
  const [, response] = (await once(socket, "unexpected-response")) as [unknown, http.IncomingMessage];
  expect(response.statusCode).toBe(403);
});

test("dev server: where nothing listens inside either, the answer is as before", async () => {
  expect((await call(port, "/", { headers: to(5199) })).status).toBe(502);
  expect((await call(port, "/", { headers: to(8080) })).text).toBe("the daemon");
});

test("dev server: a link or a path to a published client's port never leads to the daemon", async () => {
  expect((await call(port, "/", { headers: to(8080) })).text).toBe("the daemon");
  // A kept connection of theirs is nothing for others either.
  const byPath = await call(port, "/sandboxes/default/web/8080/", { headers: bearer() });
  expect(byPath).toMatchObject({
    status: 502,
    text: expect.stringContaining("nothing listens on port 8080") as string,
  });
});

test("dev server: an alias that something inside listens on is not the daemon's", async () => {
  await openUpstream(world, { address: inside, port: 9090 }, (_request, response) => response.end("inside"));
  expect((await call(port, "/", { headers: to(9090) })).text).toBe("inside");
});

test("dev server: a daemon that answers nonsense is no way in", async () => {
  const address = await world.sandbox(router, "odd");
  let nonsense = "";
  await openRawUpstream(world, { address, port: daemonPort }, (socket) => socket.write(nonsense));
  for (nonsense of ["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "x".repeat(5000)]) {
    const head = `GET / HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: odd\r\nX-Sandbox-Port: 7000\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n\r\n`;
    expect(await exchangeRaw(port, head)).toMatch(/^HTTP\/1\.1 502 /);
  }
});
