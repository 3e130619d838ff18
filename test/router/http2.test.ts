import { once } from "node:events";
import http2 from "node:http2";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { RouterWorld, until } from "./router-world.ts";
import { echo, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter & { readonly metrics: { metrics(): Promise<string> } };
let address: string;
let client: http2.ClientHttp2Session;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router({ leftMs: 100 });
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  address = await world.sandbox(router, "box");
  await openUpstream(world, { address, port: 8888 }, echo);
  await openGrpcServer(9090);
  client = http2.connect(`http://127.0.0.1:${port}`);
});

afterAll(async () => {
  client.destroy();
  await world[Symbol.asyncDispose]();
});

/** A gRPC server by hand: echoes each message, then ends with the status that the call asked for. */
async function openGrpcServer(port: number): Promise<void> {
  const server = http2.createServer();
  server.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    if (headers["x-silent"] !== undefined) {
      stream.close(http2.constants.NGHTTP2_REFUSED_STREAM);
      return;
    }
    const status = String(headers["x-status"] ?? "0");
    stream.respond(
      {
        ":status": 200,
        "content-type": "application/grpc",
        "x-path": String(headers[":path"]),
        "x-auth": String(headers["authorization"]),
        "x-seen": Object.keys(headers).join(" "),
      },
      { waitForTrailers: true },
    );
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": status, "grpc-message": "told" }));
    stream.pipe(stream);
  });
  const sessions = new Set<http2.ServerHttp2Session>();
  server.on("session", (session) => sessions.add(session));
  server.listen(port, address);
  await once(server, "listening");
  world.onClose(async () => {
    for (const session of sessions) session.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
}

interface Reply {
  readonly headers: http2.IncomingHttpHeaders;
  readonly trailers: http2.IncomingHttpHeaders;
  readonly body: string;
}

async function send(headers: http2.OutgoingHttpHeaders, body = ""): Promise<Reply> {
  const stream = client.request({ ":method": "POST", ":path": "/", "x-sandbox-id": "box", ...headers });
  let trailers: http2.IncomingHttpHeaders = {};
  stream.on("trailers", (received: http2.IncomingHttpHeaders) => (trailers = received));
  const answered = once(stream, "response") as Promise<[http2.IncomingHttpHeaders]>;
  stream.end(body);
  const [received] = await answered;
  const chunks: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
  return { headers: received, trailers, body: Buffer.concat(chunks).toString() };
}

const grpc = { "content-type": "application/grpc", te: "trailers", "x-sandbox-port": "9090" };

test("router http2: plain requests over cleartext HTTP/2 reach an HTTP/1.1 server", async () => {
  const reply = await send({ ":path": "/a%2Fb?c" }, "body");
  expect(reply.headers[":status"]).toBe(200);
  expect(JSON.parse(reply.body)).toMatchObject({ url: "/a%2Fb?c", body: "body", method: "POST" });
});

test("router http2: a gRPC call passes with its messages and trailers (G8)", async () => {
  const reply = await send(
    { ...grpc, ":path": "/process.v1.ProcessService/Execute", authorization: "Bearer x" },
    "message",
  );
  expect(reply).toMatchObject({ body: "message", trailers: { "grpc-status": "0", "grpc-message": "told" } });
  expect(reply.headers).toMatchObject({ "x-path": "/process.v1.ProcessService/Execute", "x-auth": "undefined" });
});

test("router http2: what is for the router stays there on a gRPC call as on any other", async () => {
  const reply = await send({
    ...grpc,
    "proxy-authorization": "Basic x",
    "x-forwarded-for": "192.0.2.1",
    "x-sandbox-namespace": "default",
    "x-mine": "1",
  });
  expect(String(reply.headers["x-seen"]).split(" ").toSorted()).toEqual(
    [":authority", ":method", ":path", ":scheme", "content-type", "te", "x-mine"].toSorted(),
  );
});

test("router http2: a failed gRPC call keeps its status", async () => {
  expect((await send({ ...grpc, "x-status": "5" })).trailers["grpc-status"]).toBe("5");
});

test("router http2: both directions of a gRPC stream flow at once", async () => {
  const stream = client.request({ ":method": "POST", ":path": "/s/m", "x-sandbox-id": "box", ...grpc });
  for (const message of ["one", "two", "three"]) {
    stream.write(message);
    const [chunk] = (await once(stream, "data")) as [Buffer];
    expect(chunk.toString()).toBe(message);
  }
  stream.end();
  const [trailers] = (await once(stream, "trailers")) as [http2.IncomingHttpHeaders];
  expect(trailers["grpc-status"]).toBe("0");
});

test("router http2: refusals of gRPC calls are statuses of gRPC", async () => {
  const unknown = await send({ ...grpc, "x-sandbox-id": "nobody" });
  expect(unknown.headers).toMatchObject({ ":status": 200, "grpc-status": "5" });
  const closed = await send({ ...grpc, "x-sandbox-port": "7301" });
  expect(closed.headers["grpc-status"]).toBe("14");
  const silent = await send({ ...grpc, "x-silent": "1" });
  expect(silent.headers["grpc-status"]).toBe("14");
});

test("router http2: a path that would break out of its line is refused", async () => {
  const reply = await send({ ":path": "/a b HTTP/1.1" }).catch(() => undefined);
  expect([undefined, 400]).toContain(reply?.headers[":status"]);
});

test("router http2: a cancelled gRPC call is cancelled at the sandbox", async () => {
  const stream = client.request({ ":method": "POST", ":path": "/s/m", "x-sandbox-id": "box", ...grpc });
  stream.write("x");
  await once(stream, "data");
  stream.close(http2.constants.NGHTTP2_CANCEL);
  await once(stream, "close");
  // The session that carried it still works.
  expect((await send(grpc, "again")).body).toBe("again");
});

test("router http2: a gRPC stream goes on while its Pod fails a probe, and ends with a Pod that is gone", async () => {
  const open = () => client.request({ ":method": "POST", ":path": "/s/m", "x-sandbox-id": "box", ...grpc });
  const said = async (stream: http2.ClientHttp2Stream, text: string): Promise<string> => {
    stream.write(text);
    const [chunk] = (await once(stream, "data")) as [Buffer];
    return chunk.toString();
  };
  const stream = open();
  expect(await said(stream, "before")).toBe("before");
  await world.setStatus("box", { addresses: [address], status: "False", reason: "DependenciesNotReady" });
  await until(() => router.table.get("default", "box")?.state.kind === "starting");
  expect(await said(stream, "still")).toBe("still");
  await world.setStatus("box", { addresses: [address], status: "True", reason: "DependenciesReady" });
  await until(() => router.table.get("default", "box")?.state.kind === "ready");
  const second = open();
  expect(await said(second, "again")).toBe("again");
  const ended = [stream, second].map(
    (one) => new Promise((resolve) => one.on("error", resolve).once("close", () => resolve(undefined))),
  );
  await world.setStatus("box", { addresses: [], status: "False", reason: "SandboxSuspended" });
  for (const error of await Promise.all(ended)) expect(String(error)).toContain("NGHTTP2_INTERNAL_ERROR");
  await world.setStatus("box", { addresses: [address], status: "True", reason: "DependenciesReady" });
  await until(() => router.table.get("default", "box")?.state.kind === "ready");
});

test("router http2: a gRPC call waits for a sandbox that wakes", async () => {
  const spec = { autoSuspension: { inactivityTimeoutSeconds: 60 } };
  const ready = { status: "False", reason: "SandboxSuspended" } as const;
  await world.sandbox(router, "dozy", { spec, addresses: [], ready });
  const pending = send({ ...grpc, "x-sandbox-id": "dozy" }, "message");
  await until(async () => /held_requests 1\n/.test(await router.metrics.metrics()));
  await world.setStatus("dozy", { addresses: [address], status: "True", reason: "DependenciesReady" });
  expect(await pending).toMatchObject({ body: "message", trailers: { "grpc-status": "0" } });
});
