import { spawn } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { echo, openRawUpstream, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter & { metrics: { metrics(): Promise<string> } };
let port: number;
let address: string;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router({
    firstByteTimeoutMs: 300,
    bodyBytesMax: 1000,
    limits: { perClientMax: 0, perSandboxMax: 3 },
  });
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  address = await world.sandbox(router, "box");
  await openUpstream(world, { address, port: 8888 }, echo);
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const to = (sandboxPort: number, more: Record<string, string> = {}) => ({
  headers: { "X-Sandbox-ID": "box", "X-Sandbox-Port": String(sandboxPort), ...more },
});

test("router failures: nothing listens: 502 with the reference's text, after the retries", async () => {
  const answer = await call(port, "/", to(7100));
  expect(answer).toMatchObject({ status: 502, headers: { "content-type": "application/json" } });
  const { detail } = JSON.parse(answer.text) as { detail: string };
  expect(detail).toMatch(
    /^Could not connect to the backend sandbox: box: nothing listens on port 7100 in sandbox default\/box, which has been running since 20\d\d-\S+Z; a process started with run -d /,
  );
  const text = await router.metrics.metrics();
  expect(text).toContain('sandbox_router_upstream_retries_total{sandbox_namespace="default"} 2');
  expect(text).toContain('sandbox_router_upstream_errors_total{sandbox_namespace="default",reason="dial"} 1');
});

test("router failures: a port that is bound a moment later is reached, with the body whole (G11)", async () => {
  const pending = call(port, "/late", { ...to(7101), method: "POST", body: "kept" });
  await new Promise((resolve) => setTimeout(resolve, 10));
  await openUpstream(world, { address, port: 7101 }, echo);
  expect(JSON.parse((await pending).text)).toMatchObject({ url: "/late", body: "kept" });
});

test("router failures: silence is 504, and the caller's own limit counts (G9)", async () => {
  await openRawUpstream(world, { address, port: 7102 }, (socket) => socket.resume());
  const startMs = performance.now();
  const answer = await call(port, "/", to(7102));
  expect(answer).toMatchObject({ status: 504, text: '{"detail":"Timed out waiting for the backend sandbox: box"}\n' });
  expect(performance.now() - startMs).toBeGreaterThan(290);
  const longer = performance.now();
  await call(port, "/", to(7102, { "X-Sandbox-Timeout": "0.6" }));
  expect(performance.now() - longer).toBeGreaterThan(590);
});

test("router failures: a POST that outlasts its caller's own limit is 408, which no client sends again (K23)", async () => {
  let arrived = 0;
  await openUpstream(world, { address, port: 7119 }, () => {
    arrived += 1;
  });
  const limited = to(7119, { "X-Sandbox-Timeout": "0.3" });
  expect((await call(port, "/", { ...limited, method: "POST", body: "run" })).status).toBe(408);
  expect((await call(port, "/", limited)).status).toBe(504);
  expect(arrived).toBe(2);
});

test("router failures: a legacy command whose connection is lost after it was sent is 408 and says that it may have run (K23)", async () => {
  await openRawUpstream(world, { address, port: 7121 }, (socket) => socket.once("data", () => socket.destroy()));
  const lost = await call(port, "/execute", { ...to(7121), method: "POST", body: "run" });
  expect(lost).toMatchObject({ status: 408, text: expect.stringContaining("may have run") as string });
  expect((await call(port, "/", { ...to(7121), method: "POST", body: "run" })).status).toBe(502);
});

test("router failures: a command slower than the router's limit is not cut below the caller's (K24)", async () => {
  await openUpstream(world, { address, port: 7103 }, (_request, response) => {
    setTimeout(() => response.end("slow"), 500);
  });
  expect((await call(port, "/", to(7103, { "X-Sandbox-Timeout": "2" }))).text).toBe("slow");
});

/** A full queue of connections that are not accepted: further ones get no answer at all. Node always accepts, so Python listens. */
const silentListener = `
import socket, sys, time
listener = socket.socket()
listener.bind((sys.argv[1], 7104))
listener.listen(0)
kept = [socket.create_connection((sys.argv[1], 7104))]
print("full", flush=True)
time.sleep(60)
`;

test("router failures: an address that swallows packets is 504 after the connect limit, not after minutes (G10)", async () => {
  const silent = spawn("python3", ["-c", silentListener, address], { stdio: ["ignore", "pipe", "inherit"] });
  await once(silent.stdout, "data");
  const startMs = performance.now();
  const answer = await call(port, "/", to(7104, { "X-Sandbox-Timeout": "30" }));
  silent.kill();
  expect(answer.status).toBe(504);
  expect(performance.now() - startMs).toBeLessThan(5_000);
});

test("router failures: a sandbox that is not HTTP is 502", async () => {
  await openRawUpstream(world, { address, port: 7105 }, (socket) => socket.end("SSH-2.0-OpenSSH_9\r\n\r\n"));
  expect(await call(port, "/", to(7105))).toMatchObject({ status: 502 });
});

test("router failures: a sandbox that closes without a word is 502", async () => {
  await openRawUpstream(world, { address, port: 7106 }, (socket) => socket.once("data", () => socket.destroy()));
  expect(await call(port, "/", to(7106))).toMatchObject({
    status: 502,
    text: '{"detail":"Could not connect to the backend sandbox: box"}\n',
  });
});

test("router failures: headers that cannot be passed on are 502, not an end of the process", async () => {
  await openRawUpstream(world, { address, port: 7107 }, (socket) => {
    socket.once("data", () => socket.write("HTTP/1.1 200 OK\r\nX-Bad: a\u0001b\r\nContent-Length: 0\r\n\r\n"));
  });
  expect((await call(port, "/", to(7107))).status).toBe(502);
});

test("router failures: an answer that breaks off is cut at the caller too, and counted (G14)", async () => {
  await openRawUpstream(world, { address, port: 7108 }, (socket) => {
    socket.once("data", () =>
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart", () => setTimeout(() => socket.destroy(), 30)),
    );
  });
  const request = http.get({ host: "127.0.0.1", port, agent: false, ...to(7108) });
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  response.resume();
  const [error] = (await once(response, "error")) as [NodeJS.ErrnoException];
  expect(error.code).toBe("ECONNRESET");
  expect(await router.metrics.metrics()).toContain('upstream_errors_total{sandbox_namespace="default",reason="eof"}');
});

test("router failures: a body above the limit is 413", async () => {
  const answer = await call(port, "/", { ...to(8888), method: "PUT", body: "x".repeat(2000) });
  expect(answer).toMatchObject({ status: 413, text: '{"detail":"request body is larger than 1000 bytes"}\n' });
});

test("router failures: more open requests than a sandbox may have are 429 and told when to come back", async () => {
  const held: http.ServerResponse[] = [];
  await openUpstream(world, { address, port: 7109 }, (_request, response) => held.push(response));
  const open = [1, 2, 3].map(() => call(port, "/", to(7109, { "X-Sandbox-Timeout": "20" })));
  await expect.poll(() => held.length).toBe(3);
  const refused = await call(port, "/", to(8888));
  expect(refused).toMatchObject({ status: 429, headers: { "retry-after": "1" } });
  for (const response of held) response.end("ok");
  await Promise.all(open);
  expect((await call(port, "/", to(8888))).status).toBe(200);
});

test("router failures: the published ports fall back to the daemon's where nothing listens", async () => {
  const plain = await world.sandbox(router, "plain");
  await openUpstream(world, { address: plain, port: 49_900 }, (_request, response) => response.end("daemon"));
  for (const wanted of ["8888", "8080", "9090"])
    expect((await call(port, "/", { headers: { "X-Sandbox-ID": "plain", "X-Sandbox-Port": wanted } })).text).toBe(
      "daemon",
    );
  expect((await call(port, "/", { headers: { "X-Sandbox-ID": "plain", "X-Sandbox-Port": "3000" } })).status).toBe(502);
});

test("router failures: methods and namespaces of strangers make no series (G13)", async () => {
  await call(port, "/", {
    method: "PROPFIND",
    headers: { "X-Sandbox-ID": "nobody", "X-Sandbox-Namespace": "made-up" },
  });
  const text = await router.metrics.metrics();
  expect(text).toContain('method="other",code="404"');
  expect(text).not.toContain("PROPFIND");
});
