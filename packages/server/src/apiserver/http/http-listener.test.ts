import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { request as httpsRequest } from "node:https";
import { connect as connectTcp, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { unauthorized } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { admin, podBody, TestServer } from "../testing/test-server.ts";
import type { ListenOptions } from "./http-listener.ts";

let folder = "";
let tls: ListenOptions["tls"];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "apiserver-"));
  const options = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const files = ["-keyout", join(folder, "key.pem"), "-out", join(folder, "cert.pem")];
  const name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
  execFileSync("openssl", [...options, ...files, ...name], { stdio: "ignore" });
  const certificate = readFileSync(join(folder, "cert.pem"), "utf8");
  tls = { certificate, key: readFileSync(join(folder, "key.pem"), "utf8"), clientCa: certificate };
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const authenticator = {
  async authenticate(credentials: { kind: string; bearerToken?: string }) {
    if (credentials.bearerToken !== "secret") throw unauthorized();
    return admin;
  },
};

interface Call {
  readonly method?: string;
  readonly path: string;
  readonly body?: string;
  readonly headers?: Record<string, string>;
}

function callHttp1(
  port: number,
  { method = "GET", path, body, headers = {} }: Call,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const authorization = "Bearer secret";
    const request = httpsRequest(
      { host: "127.0.0.1", port, ca: tls.certificate, method, path, headers: { authorization, ...headers } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }));
        response.on("error", reject);
      },
    );
    request.once("error", reject);
    request.end(body);
  });
}

test("listen: HTTP/1.1 requests are authenticated and answered", async () => {
  await using server = new TestServer({ authenticator });
  const listener = await server.api.listen({ host: "127.0.0.1", port: 0, tls });
  try {
    const path = "/api/v1/namespaces/default/pods";
    const created = await callHttp1(listener.port, { method: "POST", path, body: JSON.stringify(podBody("a")) });
    expect(created.status).toBe(201);
    expect((await callHttp1(listener.port, { path: `${path}/a` })).status).toBe(200);
    expect((await callHttp1(listener.port, { path, headers: { authorization: "Bearer wrong" } })).status).toBe(401);
    const large = "x".repeat(4 * 1024 * 1024);
    const refused = await callHttp1(listener.port, { method: "POST", path, body: large }).catch(
      (error: unknown) => error,
    );
    if (!(refused instanceof Error)) expect(refused).toMatchObject({ status: 413 });
  } finally {
    await listener.close();
  }
});

test("listen: a watch streams over HTTP/2 and ends with the connection", async () => {
  await using server = new TestServer({ authenticator });
  const listener = await server.api.listen({ host: "127.0.0.1", port: 0, tls });
  const session = connectHttp2(`https://127.0.0.1:${listener.port}`, { ca: tls.certificate });
  session.on("error", () => undefined);
  try {
    const path = "/api/v1/namespaces/default/pods";
    const stream = session.request({ ":path": `${path}?watch=1`, authorization: "Bearer secret" });
    stream.on("error", () => undefined);
    const first = new Promise<string>((resolve) => stream.once("data", (chunk: Buffer) => resolve(chunk.toString())));
    await new Promise((resolve) => stream.once("response", resolve));
    await server.call("POST", path, { body: podBody("a") });
    expect(JSON.parse(await first)).toMatchObject({ type: "ADDED", object: { metadata: { name: "a" } } });
  } finally {
    session.destroy();
    await listener.close();
  }
});

/** A node that answers any upgrade and then echoes. */
async function echoNode(): Promise<{ server: Server; port: number; heads: string[] }> {
  const heads: string[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.once("data", (head: Buffer) => {
      heads.push(head.toString());
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n");
      socket.pipe(socket);
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return { server, port: typeof address === "object" && address !== null ? address.port : 0, heads };
}

test("listen: an exec is passed to the node as raw bytes, without the caller's credential", async () => {
  const node = await echoNode();
  const nodeDialer = {
    request: () => Promise.reject(new Error("not asked")),
    connect: async () => connectTcp(node.port, "127.0.0.1"),
  };
  await using server = new TestServer({ authenticator, nodeDialer });
  const listener = await server.api.listen({ host: "127.0.0.1", port: 0, tls });
  try {
    const pods = "/api/v1/namespaces/default/pods";
    await server.call("POST", pods, { body: podBody("a", { nodeName: "n1" }) });
    const path = `${pods}/a/exec?command=ls&command=-l&stdout=true`;
    const headers = { authorization: "Bearer secret", connection: "Upgrade", upgrade: "SPDY/3.1" };
    const echoed = await new Promise<string>((resolve, reject) => {
      const request = httpsRequest({
        host: "127.0.0.1",
        port: listener.port,
        ca: tls.certificate,
        method: "POST",
        path,
        headers,
      });
      request.once("upgrade", (_response, socket) => {
        socket.once("data", (chunk: Buffer) => {
          resolve(chunk.toString());
          socket.destroy();
        });
        socket.write("hello");
      });
      request.once("error", reject);
      request.end();
    });
    expect(echoed).toBe("hello");
    expect(node.heads[0]).toContain("POST /exec/default/a/main?command=ls&command=-l&output=1 HTTP/1.1");
    expect(node.heads[0]).not.toContain("secret");
  } finally {
    await listener.close();
    node.server.close();
  }
});

/** A node that sends the start of an answer and then cuts the connection. */
async function* cutAnswer(): AsyncGenerator<Uint8Array> {
  yield Buffer.from("first line\n");
  await new Promise((resolve) => setImmediate(resolve));
  throw Object.assign(new Error("aborted"), { code: "ECONNRESET" });
}

test("listen: a node that cuts its answer cuts the client's, and the server goes on", async () => {
  const nodeDialer = {
    request: async () => ({ status: 200, headers: { "content-type": "text/plain" }, body: cutAnswer() }),
    connect: () => Promise.reject(new Error("not asked")),
  };
  await using server = new TestServer({ authenticator, nodeDialer });
  const listener = await server.api.listen({ host: "127.0.0.1", port: 0, tls });
  const session = connectHttp2(`https://127.0.0.1:${listener.port}`, { ca: tls.certificate });
  session.on("error", () => undefined);
  try {
    const pods = "/api/v1/namespaces/default/pods";
    await server.call("POST", pods, { body: podBody("a", { nodeName: "n1" }) });
    await expect(callHttp1(listener.port, { path: `${pods}/a/log` })).rejects.toMatchObject({ code: "ECONNRESET" });
    const stream = session.request({ ":path": `${pods}/a/log`, authorization: "Bearer secret" });
    stream.resume();
    await expect(new Promise((_, reject) => void stream.once("error", reject))).rejects.toThrow(/INTERNAL_ERROR/);
    expect((await callHttp1(listener.port, { path: `${pods}/a` })).status).toBe(200);
  } finally {
    session.destroy();
    await listener.close();
  }
});

test("listener: a client of HTTP/2 that answers no ping is let go", async () => {
  await using server = new TestServer({ authenticator });
  const listener = await server.api.listen({ host: "127.0.0.1", port: 0, tls, pingEveryMs: 20 });
  const socket = connectTls({ host: "127.0.0.1", port: listener.port, ca: tls.certificate, ALPNProtocols: ["h2"] });
  await new Promise((resolve) => socket.once("secureConnect", resolve));
  // The preface and empty settings: a client that connects properly and then goes away without closing anything.
  socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  socket.write(Uint8Array.of(0, 0, 0, 4, 0, 0, 0, 0, 0));
  socket.on("error", () => undefined).resume();
  await new Promise((resolve) => socket.once("close", resolve));
  await listener.close();
});

test("listen: a client that vanishes while the node takes none of its input ends the node's connection", async () => {
  const ended = Promise.withResolvers<void>();
  const node = createServer((socket) => {
    socket.on("error", () => undefined).once("close", () => ended.resolve());
    socket.once("data", () => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n");
      socket.pause();
      // The node's endpoint pings a client that it does not read from.
      const pinging = setInterval(() => socket.write("ping"), 50);
      socket.once("close", () => clearInterval(pinging));
    });
  });
  await new Promise<void>((resolve) => void node.listen(0, "127.0.0.1", resolve));
  const { port } = node.address() as { port: number };
  const connect = async () => connectTcp(port, "127.0.0.1");
  const nodeDialer = { request: () => Promise.reject(new Error("not asked")), connect };
  await using server = new TestServer({ authenticator, nodeDialer });
  const listener = await server.api.listen({ host: "127.0.0.1", port: 0, tls });
  const pods = "/api/v1/namespaces/default/pods";
  await server.call("POST", pods, { body: podBody("a", { nodeName: "n1" }) });
  const headers = { authorization: "Bearer secret", connection: "Upgrade", upgrade: "SPDY/3.1" };
  const path = `${pods}/a/exec?command=cat&stdin=true&stdout=true`;
  const shared = { host: "127.0.0.1", port: listener.port, ca: tls.certificate, method: "POST", path, headers };
  const request = httpsRequest(shared);
  request.once("upgrade", (_response, socket) => {
    socket.on("error", () => undefined).write(Buffer.alloc(32 * 1024 * 1024));
    setTimeout(() => socket.destroy(), 300);
  });
  request.end();
  await ended.promise;
  await listener.close();
  node.close();
});
