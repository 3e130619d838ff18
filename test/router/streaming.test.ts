import { once } from "node:events";
import http from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call, readAnswer } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { openRawUpstream, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter;
let port: number;
let address: string;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router();
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  address = await world.sandbox(router, "box");
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const piece = Buffer.alloc(64 * 1024, 1);
/** What may lie in socket buffers and streams between writer and reader: kernel buffers on four sockets. */
const slackBytes = 48 * 1024 * 1024;

/** Writes until told to stop, and as fast as the reader allows. */
function flood(target: NodeJS.WritableStream, counted: { bytes: number; stop: boolean }): void {
  const more = (): void => {
    while (!counted.stop) {
      counted.bytes += piece.length;
      if (!target.write(piece)) return void target.once("drain", more);
    }
    target.end();
  };
  more();
}

test("router streaming: a caller who does not read stops the sandbox's writing", async () => {
  const sent = { bytes: 0, stop: false };
  await openUpstream(world, { address, port: 7401 }, (_request, response) => flood(response, sent));
  const request = http.get({
    host: "127.0.0.1",
    port,
    agent: false,
    headers: { "X-Sandbox-ID": "box", "X-Sandbox-Port": "7401" },
  });
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  await new Promise((resolve) => setTimeout(resolve, 500));
  const stalled = sent.bytes;
  expect(stalled).toBeLessThan(slackBytes);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(sent.bytes).toBe(stalled);
  let received = 0;
  response.on("data", (chunk: Buffer) => (received += chunk.length));
  await expect.poll(() => received, { timeout: 5_000 }).toBeGreaterThan(stalled + 50 * 1024 * 1024);
  sent.stop = true;
  await once(response, "end");
  expect(received).toBe(sent.bytes);
});

test("router streaming: a sandbox that does not read stops the caller's upload", async () => {
  const { promise: arrived, resolve } = Promise.withResolvers<[http.IncomingMessage, http.ServerResponse]>();
  await openUpstream(world, { address, port: 7402 }, (request, response) => resolve([request, response]));
  const request = http.request({
    host: "127.0.0.1",
    port,
    agent: false,
    method: "PUT",
    headers: { "X-Sandbox-ID": "box", "X-Sandbox-Port": "7402", "X-Sandbox-Timeout": "60" },
  });
  const sent = { bytes: 0, stop: false };
  flood(request, sent);
  const [upload, answer] = await arrived;
  await new Promise((done) => setTimeout(done, 500));
  const stalled = sent.bytes;
  expect(stalled).toBeLessThan(slackBytes);
  await new Promise((done) => setTimeout(done, 200));
  expect(sent.bytes).toBe(stalled);
  let received = 0;
  upload.on("data", (chunk: Buffer) => (received += chunk.length));
  sent.stop = true;
  await once(upload, "end");
  expect(received).toBe(sent.bytes);
  answer.end("done");
  await once(request, "response");
});

test("router streaming: half a gigabyte both ways leaves memory flat", async () => {
  const size = 256 * 1024 * 1024;
  await openUpstream(world, { address, port: 7403 }, (request, response) => {
    response.writeHead(200);
    request.pipe(response);
  });
  const request = http.request({
    host: "127.0.0.1",
    port,
    agent: false,
    method: "POST",
    headers: { "X-Sandbox-ID": "box", "X-Sandbox-Port": "7403", "Content-Length": String(size) },
  });
  const before = process.memoryUsage().rss;
  let peak = 0;
  let received = 0;
  const sent = { bytes: 0, stop: false };
  request.on("response", (response) => {
    response.on("data", (chunk: Buffer) => {
      received += chunk.length;
      peak = Math.max(peak, process.memoryUsage.rss());
    });
  });
  await new Promise<void>((resolve) => {
    const more = (): void => {
      while (sent.bytes < size) {
        sent.bytes += piece.length;
        if (!request.write(piece)) return void request.once("drain", more);
      }
      request.end(resolve);
    };
    more();
  });
  await expect.poll(() => received, { timeout: 15_000 }).toBe(size);
  expect((peak - before) / 1024 / 1024).toBeLessThan(160);
});

test("router streaming: a draining router finishes what is open, refuses what is new, and then is gone", async () => {
  const other = await world.router();
  const otherPort = await other.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  await openUpstream(world, { address, port: 7404 }, (_request, response) =>
    setTimeout(() => response.end("whole"), 300),
  );
  const agent = new http.Agent({ keepAlive: true });
  const to = { headers: { "X-Sandbox-ID": "box", "X-Sandbox-Port": "7404" }, agent };
  await expect.poll(() => other.table.get("default", "box")?.state.kind).toBe("ready");
  const open = call(otherPort, "/", to);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const startMs = performance.now();
  const closing = other.close(5_000);
  await expect(call(otherPort, "/", { headers: to.headers })).rejects.toThrow("ECONNREFUSED");
  expect(await open).toMatchObject({ text: "whole", headers: { connection: "close" } });
  await closing;
  expect(performance.now() - startMs).toBeLessThan(2_000);
  agent.destroy();
});

test("router streaming: answers that arrive at the same time do not mix, however slowly they are read", async () => {
  const bytes = 2 * 1024 * 1024;
  await openRawUpstream(world, { address, port: 7411 }, (socket) => {
    socket.once("data", (head: Buffer) => {
      const letter = head.toString("latin1", 5, 6);
      // The head comes in two pieces: what is kept of the first must not change until the second is here.
      socket.write(`HTTP/1.1 200 OK\r\nX-Letter: ${letter.repeat(40)}`);
      setTimeout(() => socket.write(`\r\nContent-Length: ${bytes}\r\n\r\n${letter.repeat(bytes)}`), 20);
    });
  });
  const letters = ["a", "b", "c", "d", "e", "f"];
  const headers = { "X-Sandbox-ID": "box", "X-Sandbox-Port": "7411" };
  const answers = letters.map(async (letter) => {
    const request = http.get({ host: "127.0.0.1", port, path: `/${letter}`, agent: false, headers });
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    await new Promise((resolve) => setTimeout(resolve, 100));
    return readAnswer(response);
  });
  for (const [index, { headers: received, text }] of (await Promise.all(answers)).entries()) {
    const letter = letters[index] as string;
    expect(received["x-letter"]).toBe(letter.repeat(40));
    expect(text === letter.repeat(bytes)).toBe(true);
  }
});
