import { once } from "node:events";
import net from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { exchangeRaw } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { openRawUpstream, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter & { metrics: { metrics(): Promise<string> } };
let port: number;
let address: string;
let handshake: NodeJS.Dict<string | string[]> = {};

beforeAll(async () => {
  world = await RouterWorld.open();
  // The limit on a first byte is shorter than the sockets below live: it must not cut them.
  router = await world.router({ firstByteTimeoutMs: 300 });
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  address = await world.sandbox(router, "box");
  const server = await openUpstream(world, { address, port: 3000 }, (_request, response) =>
    response.writeHead(404).end(),
  );
  const sockets = new WebSocketServer({ server, handleProtocols: (offered) => [...offered].at(-1) ?? false });
  sockets.on("connection", (socket, request) => {
    handshake = request.headers;
    socket.on("message", (message, isBinary) => socket.send(message, { binary: isBinary }));
  });
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const headers = { "X-Sandbox-ID": "box", "X-Sandbox-Port": "3000" };
const upgradeHead = (sandboxPort: number) =>
  `GET /u HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: box\r\nX-Sandbox-Port: ${sandboxPort}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: raw\r\n\r\n`;

test("router upgrades: a WebSocket passes with its subprotocol, outlives the request limit and closes with its code", async () => {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/ws?x=1`, ["one", "two"], {
    headers: { ...headers, Origin: "http://page", Authorization: "Bearer secret", Cookie: "a=1" },
  });
  await once(socket, "open");
  expect(socket.protocol).toBe("two");
  expect(handshake["authorization"]).toBeUndefined();
  expect(handshake["origin"]).toBeUndefined();
  expect(handshake).toMatchObject({ cookie: "a=1", host: `${address}:3000`, "x-forwarded-for": "127.0.0.1" });
  await new Promise((resolve) => setTimeout(resolve, 600));
  socket.send("hello");
  const [message] = (await once(socket, "message")) as [Buffer];
  expect(message.toString()).toBe("hello");
  const big = Buffer.alloc(3_000_000, 7);
  socket.send(big);
  const [echoed] = (await once(socket, "message")) as [Buffer];
  expect(echoed.equals(big)).toBe(true);
  socket.close(4001, "bye");
  const [code, reason] = (await once(socket, "close")) as [number, Buffer];
  expect([code, reason.toString()]).toEqual([4001, "bye"]);
});

test("router upgrades: a WebSocket by path, as a browser opens it", async () => {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/sandboxes/default/box/3000/hmr`);
  await once(socket, "open");
  socket.send("x");
  await once(socket, "message");
  socket.terminate();
});

test("router upgrades: a clean session is counted as 101", async () => {
  await expect
    .poll(async () => router.metrics.metrics())
    .toContain('sandbox_router_requests_total{method="GET",code="101",sandbox_namespace="default"}');
});

test("router upgrades: a sandbox that declines is heard", async () => {
  await openUpstream(world, { address, port: 7201 }, (_request, response) => {
    response.writeHead(426, { "X-Why": "no sockets here", "Content-Length": "2" });
    response.end("no");
  });
  const text = await exchangeRaw(port, upgradeHead(7201));
  expect(text).toMatch(/^HTTP\/1\.1 426 /);
  expect(text).toContain("X-Why: no sockets here");
  expect(text.endsWith("\r\n\r\nno")).toBe(true);
});

test("router upgrades: another protocol than was asked for is 502", async () => {
  await openRawUpstream(world, { address, port: 7202 }, (socket) => {
    socket.once("data", () =>
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"),
    );
  });
  expect(await exchangeRaw(port, upgradeHead(7202))).toMatch(/^HTTP\/1\.1 502 /);
});

test("router upgrades: refusals are ordinary answers before the handshake", async () => {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { "X-Sandbox-ID": "nobody" } });
  const [, response] = (await once(socket, "unexpected-response")) as [unknown, { statusCode: number }];
  expect(response.statusCode).toBe(404);
  expect(await exchangeRaw(port, upgradeHead(7299))).toMatch(/^HTTP\/1\.1 502 /);
});

test("router upgrades: a silent handshake is 504", async () => {
  await openRawUpstream(world, { address, port: 7203 }, (socket) => socket.resume());
  expect(await exchangeRaw(port, upgradeHead(7203))).toMatch(/^HTTP\/1\.1 504 /);
});

test("router upgrades: each direction can end alone", async () => {
  await openRawUpstream(world, { address, port: 7204 }, (socket) => {
    const chunks: Buffer[] = [];
    socket.once("data", () => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n");
      socket.on("data", (chunk: Buffer) => chunks.push(chunk));
      // The answer comes only after the caller's half has ended: cat.
      socket.once("end", () => socket.end(Buffer.concat(chunks)));
    });
  });
  const socket = net.connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  const received: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => received.push(chunk));
  socket.write(upgradeHead(7204));
  await once(socket, "data");
  socket.end("all of the input");
  await once(socket, "end");
  expect(Buffer.concat(received).toString()).toContain("all of the input");
});

test("router upgrades: bytes sent right behind the request are not lost", async () => {
  await openRawUpstream(world, { address, port: 7205 }, (socket) => {
    let text = "";
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      if (!text.includes("early")) return;
      socket.end("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\ngot early");
    });
  });
  expect(await exchangeRaw(port, `${upgradeHead(7205)}early`)).toMatch(/got early$/);
});

test("router upgrades: a sandbox that declines without end is read no faster than the caller reads", async () => {
  let sent = 0;
  await openRawUpstream(world, { address, port: 7209 }, (socket) => {
    const piece = Buffer.alloc(64 * 1024, "x");
    const flood = (): void => {
      while (!socket.destroyed && sent < 256 * 1024 * 1024) {
        sent += piece.length;
        if (!socket.write(piece)) return void socket.once("drain", flood);
      }
    };
    socket.once("data", () => {
      socket.write("HTTP/1.1 403 Forbidden\r\nContent-Length: 99999999999\r\n\r\n");
      flood();
    });
  });
  const caller = net.connect({ host: "127.0.0.1", port });
  caller.write(upgradeHead(7209));
  caller.pause();
  await new Promise((resolve) => setTimeout(resolve, 700));
  const before = sent;
  await new Promise((resolve) => setTimeout(resolve, 200));
  caller.destroy();
  expect([sent, sent < 64 * 1024 * 1024]).toEqual([before, true]);
});
