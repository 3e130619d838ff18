import { once } from "node:events";
import type http from "node:http";
import http2 from "node:http2";
import { afterEach, beforeEach, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { openUpstream } from "./upstream.ts";

let world: RouterWorld;
let address: string;
/** How the sandbox's end of each WebSocket was closed. */
let closes: Promise<[number, string]>[];

beforeEach(async () => {
  world = await RouterWorld.open();
  closes = [];
  begun = Promise.withResolvers();
});

afterEach(async () => {
  await world[Symbol.asyncDispose]();
});

async function open(limits: { upgradeIdleTimeoutMs?: number; upgradeLifetimeMs?: number } = {}): Promise<{
  router: OpenedRouter;
  port: number;
}> {
  const router = await world.router(limits);
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  address = await world.sandbox(router, "box");
  const server = await openUpstream(world, { address, port: 3000 }, slowly);
  const sockets = new WebSocketServer({ server });
  sockets.on("connection", (socket) => {
    closes.push(new Promise((resolve) => socket.once("close", (code, reason) => resolve([code, reason.toString()]))));
    socket.on("message", (message) => socket.send(message));
  });
  return { router, port };
}

/** The sandbox has begun an answer; calling what it resolves with ends it. */
let begun: PromiseWithResolvers<() => void>;
function slowly(_request: http.IncomingMessage, response: http.ServerResponse): void {
  response.writeHead(200, { "Content-Type": "text/plain" });
  response.write("begun ");
  begun.resolve(() => response.end("finished"));
}

const headers = { "X-Sandbox-ID": "box", "X-Sandbox-Port": "3000" };

async function openWebsocket(port: number): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers });
  await once(socket, "open");
  return socket;
}

async function closed(socket: WebSocket): Promise<[number, string]> {
  const [code, reason] = (await once(socket, "close")) as [number, Buffer];
  return [code, reason.toString()];
}

test("router draining: both ends of a WebSocket are told that the router goes away (G16)", async () => {
  const { router, port } = await open();
  const socket = await openWebsocket(port);
  const ended = closed(socket);
  const closing = router.close(30_000);
  expect(await ended).toEqual([1001, "router is shutting down"]);
  expect(await closes[0]).toEqual([1001, "router is shutting down"]);
  await closing;
});

test("router draining: a message under way arrives whole before the goodbye", async () => {
  const { router, port } = await open();
  const socket = await openWebsocket(port);
  const big = Buffer.alloc(8 << 20, 3);
  const received = once(socket, "message") as Promise<[Buffer]>;
  socket.send(big);
  // The echo is on its way once its first bytes are; the router begins to drain in the middle of it.
  await expect
    .poll(() => (socket as unknown as { _socket: { bytesRead: number } })._socket.bytesRead)
    .toBeGreaterThan(500);
  const ended = closed(socket);
  const closing = router.close(30_000);
  const [message] = await received;
  expect(message.equals(big)).toBe(true);
  expect((await ended)[0]).toBe(1001);
  await closing;
});

test("router draining: an answer under way comes to its end, and new connections are refused", async () => {
  const { router, port } = await open();
  const answering = call(port, "/", { headers });
  const release = await begun.promise;
  const closing = router.close(30_000);
  await expect(call(port, "/", { headers })).rejects.toMatchObject({ code: "ECONNREFUSED" });
  release();
  expect((await answering).text).toBe("begun finished");
  await closing;
});

test("router draining: an HTTP/2 session is told to go away once its calls are answered", async () => {
  const { router, port } = await open();
  const session = http2.connect(`http://127.0.0.1:${port}`);
  const stream = session.request({ ":path": "/", "x-sandbox-id": "box", "x-sandbox-port": "3000" });
  const goaway = once(session, "goaway");
  await once(stream, "response");
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  const closing = router.close(30_000);
  await goaway;
  (await begun.promise)();
  await once(stream, "end");
  expect(Buffer.concat(chunks).toString()).toBe("begun finished");
  await closing;
});

test("router draining: what does not end within the limit is cut", async () => {
  const { router, port } = await open();
  const answering = call(port, "/", { headers }).then(
    () => "whole",
    () => "cut",
  );
  await begun.promise;
  await router.close(50);
  expect(await answering).toBe("cut");
});

test("router sessions: a silent WebSocket ends with a reason (G15)", async () => {
  const { port } = await open({ upgradeIdleTimeoutMs: 200 });
  expect(await closed(await openWebsocket(port))).toEqual([1001, "idle timeout exceeded"]);
});

test("router sessions: a WebSocket in use ends after its longest life, with a reason (G15)", async () => {
  const { port } = await open({ upgradeLifetimeMs: 500 });
  const socket = await openWebsocket(port);
  const chatting = setInterval(() => socket.send("still here"), 50);
  const ended = await closed(socket);
  clearInterval(chatting);
  expect(ended).toEqual([1001, "max lifetime exceeded"]);
});
