import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call, exchangeRaw, readAnswer, seen } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { echo, openRawUpstream, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter;
let port: number;
let address: string;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router();
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  address = await world.sandbox(router, "box");
  await openUpstream(world, { address, port: 8888 }, echo);
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const box = { "X-Sandbox-ID": "box" };

test("router forwarding: credentials and addressing never reach the sandbox, cookies and origin do", async () => {
  const headers = {
    ...box,
    "X-Sandbox-Namespace": "default",
    "X-Sandbox-Port": "8888",
    "X-Sandbox-Timeout": "60",
    "X-Sandbox-Pod-IP": address,
    Authorization: "Bearer secret",
    Forwarded: "for=1.2.3.4",
    "X-Forwarded-For": "1.2.3.4",
    "Proxy-Authorization": "Basic x",
    Connection: "X-Hop",
    "X-Hop": "gone",
    TE: "trailers, deflate",
    Origin: "http://elsewhere",
    Cookie: "a=1; agent_sandbox_session=secret; b=2",
    traceparent: "00-1-2-01",
    "X-Custom": "kept",
  };
  const { headers: got, rawHeaders } = seen(await call(port, "/x", { headers }));
  const gone = ["authorization", "forwarded", "proxy-authorization", "x-hop", "x-sandbox-id", "x-sandbox-namespace"];
  gone.push("x-sandbox-port", "x-sandbox-timeout", "x-sandbox-pod-ip", "user-agent", "accept-encoding");
  for (const name of gone) expect(got[name], name).toBeUndefined();
  expect(got).toMatchObject({
    host: `${address}:8888`,
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": `127.0.0.1:${port}`,
    "x-forwarded-proto": "http",
    te: "trailers",
    origin: "http://elsewhere",
    cookie: "a=1; b=2",
    traceparent: "00-1-2-01",
    "x-custom": "kept",
  });
  expect(rawHeaders).toContain("X-Custom");
});

test("router forwarding: the raw path and query arrive byte for byte (G12)", async () => {
  for (const path of [
    "/list",
    "/list/",
    "/list/%2E",
    "/v1/files/%2Fa%25b",
    "//a/./b/../c",
    "/..%2f..%2fetc?x=%zz&y=a+b",
    "/*",
  ])
    expect(seen(await call(port, path, { headers: box })).url).toBe(path);
});

test("router forwarding: every method passes, HEAD and OPTIONS included", async () => {
  for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
    expect(seen(await call(port, "/", { method, headers: box })).method).toBe(method);
  const head = await call(port, "/", { method: "HEAD", headers: box });
  expect(head).toMatchObject({ status: 200, text: "" });
  expect(Number(head.headers["content-length"])).toBeGreaterThan(0);
});

test("router forwarding: bodies with length and in chunks", async () => {
  expect(seen(await call(port, "/", { method: "POST", headers: box, body: "hello" })).headers["content-length"]).toBe(
    "5",
  );
  const chunked = `POST /c HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: box\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n4\r\n you\r\n0\r\nX-Sum: 8\r\n\r\n`;
  expect(await exchangeRaw(port, chunked)).toContain('"body":"hello you"');
});

test("router forwarding: trailers of request and answer pass", async () => {
  const received: NodeJS.Dict<string>[] = [];
  await openUpstream(world, { address, port: 7001 }, (request, response) => {
    request.resume();
    request.on("end", () => {
      received.push(request.trailers);
      response.writeHead(200, { Trailer: "X-Sum" });
      response.write("part");
      response.addTrailers({ "X-Sum": "4" });
      response.end();
    });
  });
  const request = http.request({
    port,
    host: "127.0.0.1",
    agent: false,
    method: "POST",
    headers: { ...box, "X-Sandbox-Port": "7001", Trailer: "X-In" },
  });
  request.write("body");
  request.addTrailers({ "X-In": "9" });
  request.end();
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  const answer = await readAnswer(response);
  expect(answer).toMatchObject({ text: "part", trailers: { "x-sum": "4" } });
  expect(received).toEqual([{ "x-in": "9" }]);
});

test("router forwarding: duplicate headers of an answer stay apart, redirects and errors pass", async () => {
  await openUpstream(world, { address, port: 7002 }, (_request, response) => {
    response.writeHead(302, [
      "Location",
      "/elsewhere",
      "Set-Cookie",
      "a=1",
      "Set-Cookie",
      "b=2",
      "X-Two",
      "1",
      "x-two",
      "2",
    ]);
    response.end();
  });
  const answer = await call(port, "/", { headers: { ...box, "X-Sandbox-Port": "7002" } });
  expect(answer).toMatchObject({ status: 302, headers: { location: "/elsewhere", "set-cookie": ["a=1", "b=2"] } });
  expect(answer.rawHeaders.filter((name) => name.toLowerCase() === "x-two")).toEqual(["X-Two", "x-two"]);
});

test("router forwarding: a compressed answer is passed as it is", async () => {
  await openUpstream(world, { address, port: 7003 }, (_request, response) => {
    response.writeHead(200, { "Content-Encoding": "gzip", "Content-Length": "4" });
    response.end(Buffer.from([0x1f, 0x8b, 8, 0]));
  });
  const answer = await call(port, "/", { headers: { ...box, "X-Sandbox-Port": "7003" } });
  expect(answer.headers["content-encoding"]).toBe("gzip");
});

test("router forwarding: 100 Continue comes from the sandbox and the body waits for it", async () => {
  const asked: string[] = [];
  const server = await openUpstream(world, { address, port: 7004 }, () => undefined);
  server.on("checkContinue", (request: http.IncomingMessage, response: http.ServerResponse) => {
    asked.push(request.headers.expect ?? "");
    if (request.url === "/no") return response.writeHead(417).end();
    response.writeContinue();
    return echo(request, response);
  });
  const head = (path: string) =>
    `PUT ${path} HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: box\r\nX-Sandbox-Port: 7004\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n`;
  const socket = net.connect(port, "127.0.0.1");
  socket.write(head("/yes"));
  const [first] = (await once(socket, "data")) as [Buffer];
  expect(first.toString()).toBe("HTTP/1.1 100 Continue\r\n\r\n");
  socket.write("body");
  const [second] = (await once(socket, "data")) as [Buffer];
  expect(second.toString()).toContain('"body":"body"');
  expect(await exchangeRaw(port, head("/no"))).toMatch(/^HTTP\/1\.1 417 /);
  expect(asked).toEqual(["100-continue", "100-continue"]);
});

test("router forwarding: early hints pass", async () => {
  await openUpstream(world, { address, port: 7005 }, (_request, response) => {
    response.writeEarlyHints({ link: "</style.css>; rel=preload" }, () => response.end("done"));
  });
  const text = await exchangeRaw(
    port,
    "GET / HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: box\r\nX-Sandbox-Port: 7005\r\nConnection: close\r\n\r\n",
  );
  expect(text).toMatch(/^HTTP\/1\.1 103 Early Hints\r\nLink: <\/style\.css>; rel=preload\r\n\r\nHTTP\/1\.1 200 OK/);
});

test("router forwarding: events are delivered one by one as they are written", async () => {
  let send: (text: string) => void = () => undefined;
  await openUpstream(world, { address, port: 7006 }, (_request, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.flushHeaders();
    send = (text) => response.write(text);
  });
  const request = http.get({ port, host: "127.0.0.1", agent: false, headers: { ...box, "X-Sandbox-Port": "7006" } });
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  for (const event of ["data: 1\n\n", "data: 2\n\n"]) {
    send(event);
    const [chunk] = (await once(response, "data")) as [Buffer];
    expect(chunk.toString()).toBe(event);
  }
  request.destroy();
});

test("router forwarding: kept connections are reused towards the sandbox", async () => {
  let connections = 0;
  const server = await openUpstream(world, { address, port: 7007 }, (_request, response) => response.end("ok"));
  server.on("connection", () => (connections += 1));
  for (let round = 0; round < 5; round += 1) await call(port, "/", { headers: { ...box, "X-Sandbox-Port": "7007" } });
  expect(connections).toBe(1);
});

test("router forwarding: a kept connection that died is replaced without the caller noticing", async () => {
  const server = await openUpstream(world, { address, port: 7008 }, (_request, response) => response.end("ok"));
  const ask = () => call(port, "/", { headers: { ...box, "X-Sandbox-Port": "7008" } });
  await ask();
  server.closeAllConnections();
  expect((await ask()).text).toBe("ok");
});

test("router forwarding: a request that may run only once is never sent twice", async () => {
  const bodies: string[] = [];
  await openRawUpstream(world, { address, port: 7009 }, (socket) => {
    socket.on("data", (chunk: Buffer) => {
      bodies.push(chunk.toString());
      if (bodies.length === 1) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      else socket.destroy();
    });
  });
  const post = () => call(port, "/run", { method: "POST", body: "x", headers: { ...box, "X-Sandbox-Port": "7009" } });
  expect((await post()).status).toBe(200);
  expect((await post()).status).toBe(502);
  expect(bodies.filter((text) => text.startsWith("POST")).length).toBe(2);
});

test("router forwarding: an answer before the whole body ends the exchange, and the next one is clean", async () => {
  await openUpstream(world, { address, port: 7010 }, (_request, response) => {
    response.writeHead(413, { "Content-Length": "3", Connection: "close" });
    response.end("too");
  });
  const request = http.request({
    port,
    host: "127.0.0.1",
    agent: false,
    method: "POST",
    headers: { ...box, "X-Sandbox-Port": "7010" },
  });
  request.on("error", () => undefined);
  request.write("a".repeat(1000));
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  expect((await readAnswer(response)).status).toBe(413);
  request.destroy();
});

test("router forwarding: a caller who leaves cancels the sandbox's work", async () => {
  const { promise: cancelled, resolve } = Promise.withResolvers<void>();
  const { promise: arrived, resolve: arrive } = Promise.withResolvers<void>();
  await openUpstream(world, { address, port: 7011 }, (request) => {
    arrive();
    request.socket.once("close", () => resolve());
  });
  const request = http.get({ port, host: "127.0.0.1", agent: false, headers: { ...box, "X-Sandbox-Port": "7011" } });
  request.on("error", () => undefined);
  await arrived;
  request.destroy();
  await cancelled;
});

test("router forwarding: two requests behind each other on one connection are answered in order", async () => {
  const head = (path: string, more = "") => `GET ${path} HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: box\r\n${more}\r\n`;
  const text = await exchangeRaw(port, head("/first") + head("/second", "Connection: close\r\n"));
  expect(text.indexOf('"url":"/first"')).toBeGreaterThan(0);
  expect(text.indexOf('"url":"/second"')).toBeGreaterThan(text.indexOf('"url":"/first"'));
});

test("router forwarding: requests that could be read in two ways are refused", async () => {
  const both =
    "POST / HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: box\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  expect(await exchangeRaw(port, both)).toMatch(/^HTTP\/1\.1 400 /);
});

/** Answers every packet with what came after the head in it; in a thread of its own, so that it reads what this one has written so far. */
const packetServer = `
const { parentPort, workerData } = require("node:worker_threads");
require("node:net").createServer((socket) => socket.on("data", (packet) => {
  const [, body = ""] = packet.toString().split("\\r\\n\\r\\n");
  socket.write("HTTP/1.1 200 OK\\r\\nContent-Length: " + body.length + "\\r\\n\\r\\n" + body);
})).listen(8701, workerData, () => parentPort.postMessage("listening"));`;

test("router forwarding: a short body leaves in one packet with its head", async () => {
  const server = new Worker(packetServer, { eval: true, workerData: address });
  await once(server, "message");
  const agent = new http.Agent({ keepAlive: true });
  const headers = { ...box, "X-Sandbox-Port": "8701" };
  for (let round = 0; round < 20; round += 1) {
    const body = `body ${round}`;
    expect((await call(port, "/", { method: "POST", headers, body, agent })).text).toBe(body);
  }
  agent.destroy();
  await server.terminate();
});
