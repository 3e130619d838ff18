import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { text as streamText } from "node:stream/consumers";
import { annotationKeys, sandboxes } from "@agent-sandbox/api";
import { createClient, systemClock, type Transport } from "@agent-sandbox/kube";
import { afterEach, beforeEach, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { FaultyTransport } from "../../packages/kube/src/testing/faulty-transport.ts";
import { componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call } from "./http-call.ts";
import { RouterWorld, until } from "./router-world.ts";
import { echo, openRawUpstream, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter;
let port: number;
const holdLimitMs = 1_000;

beforeEach(async () => {
  world = await RouterWorld.open();
  router = await world.router({ holdLimitMs, heldMax: 100 });
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
});

afterEach(async () => {
  await world[Symbol.asyncDispose]();
});

const asleep = { status: "False", reason: "SandboxSuspended", message: "asleep" } as const;
const auto = { autoSuspension: { inactivityTimeoutSeconds: 60 } };
const get = (name: string) => call(port, "/", { headers: { "X-Sandbox-ID": name } });
const key = (name: string) => ({ namespace: "default", name });
const stamp = async (name: string) =>
  (await world.admin.get(sandboxes, { namespace: "default", name })).metadata.annotations?.[
    annotationKeys.lastActivityAt
  ];

test("router waking: fifty callers of a sleeping sandbox cause one write and are all answered (G1)", async () => {
  const address = world.address();
  await world.sandbox(router, "dozy", { spec: auto, addresses: [], ready: asleep });
  await until(() => router.table.get("default", "dozy")?.state.kind === "asleep");
  const before = (await world.admin.get(sandboxes, { namespace: "default", name: "dozy" })).metadata.resourceVersion;
  const calls = Array.from({ length: 50 }, () => get("dozy"));
  await until(async () => (await stamp("dozy")) !== undefined);
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("awake"));
  const reported = (await world.admin.get(sandboxes, { namespace: "default", name: "dozy" })).metadata.resourceVersion;
  await world.setStatus("dozy", { addresses: [address], status: "True", reason: "DependenciesReady" });
  const answers = await Promise.all(calls);
  expect(new Set(answers.map(({ text }) => text))).toEqual(new Set(["awake"]));
  expect(Number(reported)).toBe(Number(before) + 1);
});

test("router waking: a frozen sandbox keeps its address, and nobody dials it before it is ready again", async () => {
  const address = world.address();
  let dialled = 0;
  await openUpstream(world, { address, port: 8888 }, (_request, response) => {
    dialled += 1;
    response.end("thawed");
  });
  const spec = { ...auto, suspensionStrategy: { type: "Freeze" } } as const;
  await world.sandbox(router, "frozen", { spec, addresses: [address], ready: asleep });
  const answer = get("frozen");
  await until(async () => (await stamp("frozen")) !== undefined);
  const waking = { addresses: [address], status: "False", reason: "DependenciesNotReady", message: "Pod is waking" };
  await world.setStatus("frozen", waking);
  await until(() => router.table.get("default", "frozen")?.state.kind === "starting");
  expect(dialled).toBe(0);
  await world.setStatus("frozen", { addresses: [address], status: "True", reason: "DependenciesReady" });
  expect((await answer).text).toBe("thawed");
});

test("router waking: callers of a sandbox whose memory cannot be restored are told why", async () => {
  const spec = { ...auto, suspensionStrategy: { type: "Hibernate" } } as const;
  await world.sandbox(router, "lost", { spec, addresses: [], ready: asleep });
  const answer = get("lost");
  await until(async () => (await stamp("lost")) !== undefined);
  await world.setStatus("lost", { status: "False", reason: "SandboxRestoring" });
  await until(() => router.table.get("default", "lost")?.state.kind === "starting");
  await world.setStatus("lost", { status: "False", reason: "RestoreFailed", message: "another runtime" });
  expect(await answer).toMatchObject({ status: 502, text: expect.stringContaining("another runtime") as string });
});

test("router waking: a sandbox that does not come is 503 with Retry-After, after the hold limit", async () => {
  await world.sandbox(router, "slow", {
    addresses: [],
    ready: { status: "False", reason: "DependenciesNotReady", message: "Pod is Pending" },
  });
  const startMs = performance.now();
  const answer = await get("slow");
  expect(answer).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
  expect(answer.text).toContain("Pod is Pending");
  expect(performance.now() - startMs).toBeGreaterThan(950);
});

test("router waking: more callers than may wait are 503 at once", async () => {
  const full = await world.router({ holdLimitMs: 60_000, heldMax: 3 });
  const at = await full.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const knock = () => call(at, "/", { headers: { "X-Sandbox-ID": "slow" } });
  const address = world.address();
  await world.sandbox(full, "slow", { addresses: [], ready: { status: "False", reason: "DependenciesNotReady" } });
  const waiting = Promise.all([knock(), knock(), knock()]);
  await until(async () => /sandbox_router_held_requests 3\n/.test(await full.metrics.metrics()));
  const refused = await knock();
  expect(refused).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
  expect(refused.text).toContain("too many requests wait");
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("here"));
  await world.setStatus("slow", { addresses: [address], status: "True", reason: "DependenciesReady" });
  expect((await waiting).map(({ text }) => text)).toEqual(["here", "here", "here"]);
});

test("router waking: held by its owner is 409 and says how to resume; nothing is written", async () => {
  await world.sandbox(router, "held", { spec: { operatingMode: "Suspended" }, addresses: [], ready: asleep });
  await until(() => router.table.get("default", "held")?.state.kind === "held");
  const answer = await get("held");
  expect(answer.status).toBe(409);
  expect(answer.text).toContain("agent-sandbox resume held");
  expect(await stamp("held")).toBeUndefined();
});

test("router waking: expired is 410, finished is 502 with the reason", async () => {
  await world.sandbox(router, "old", { addresses: [], ready: { status: "False", reason: "SandboxExpired" } });
  await world.sandbox(router, "done", {
    addresses: [],
    ready: { status: "False", reason: "PodSucceeded", message: "it exited with 0" },
  });
  await until(() => router.table.get("default", "done")?.state.kind === "finished");
  expect((await get("old")).status).toBe(410);
  const done = await get("done");
  expect(done.status).toBe(502);
  expect(done.text).toContain("it exited with 0");
});

test("router waking: activity is reported before a request meets a sandbox that is about to fall asleep (G2)", async () => {
  const address = world.address();
  const old = new Date(Date.now() - 40_000).toISOString();
  await world.sandbox(router, "drowsy", {
    spec: auto,
    addresses: [address],
    annotations: { [annotationKeys.lastActivityAt]: old },
  });
  let known: string | undefined;
  await openUpstream(world, { address, port: 8888 }, (_request, response) => {
    void stamp("drowsy").then((value) => {
      known = value;
      response.end("ok");
    });
  });
  expect((await get("drowsy")).status).toBe(200);
  expect(Date.parse(known ?? "")).toBeGreaterThan(Date.now() - 10_000);
});

/** A router whose API stops answering, or goes on to answer nothing, when told to. */
async function routerOverFaults(): Promise<{
  at: number;
  router: OpenedRouter;
  fail: (how: "off" | "lost" | "silent") => void;
}> {
  let fault: "off" | "lost" | "silent" = "off";
  const transport = new FaultyTransport({
    transport: world.api.transportFor(componentUser("sandbox-router")),
    random: Math.random,
    clock: systemClock,
    rates: () => (fault === "lost" ? { lostRequest: 1 } : {}),
  });
  const silent: Transport = {
    request: (request) => (fault === "silent" ? new Promise<never>(() => undefined) : transport.request(request)),
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  };
  const faulty = await world.router({ client: createClient(silent) });
  const at = await faulty.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  return { at, router: faulty, fail: (how) => (fault = how) };
}

test.each(["lost", "silent"] as const)(
  "router waking: a ready sandbox whose last activity is old is served although the API is %s, and reported where it comes back",
  async (how) => {
    const faulty = await routerOverFaults();
    const address = world.address();
    const old = new Date(Date.now() - 50_000).toISOString();
    await world.sandbox(faulty.router, "steady", {
      spec: auto,
      addresses: [address],
      annotations: { [annotationKeys.lastActivityAt]: old },
    });
    await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("served"));
    faulty.fail(how);
    const knock = () => call(faulty.at, "/", { headers: { "X-Sandbox-ID": "steady" } });
    expect(await knock()).toMatchObject({ status: 200, text: "served" });
    const startMs = performance.now();
    expect(await knock()).toMatchObject({ status: 200, text: "served" });
    expect(performance.now() - startMs).toBeLessThan(900);
    expect(await stamp("steady")).toBe(old);
    faulty.fail("off");
    if (how === "lost") await until(async () => (await stamp("steady")) !== old);
  },
);

test("router waking: a sandbox that fell asleep in the meantime is woken instead of dialled", async () => {
  const address = world.address();
  const old = new Date(Date.now() - 50_000).toISOString();
  await world.sandbox(router, "edge", {
    spec: auto,
    addresses: [address],
    annotations: { [annotationKeys.lastActivityAt]: old },
  });
  // The controller's announcement and the request cross: the API says asleep, the router still thinks ready.
  const announced = world.setStatus("edge", { addresses: [], ...asleep });
  const pending = get("edge");
  await announced;
  await until(async () => (await stamp("edge")) !== old);
  const moved = world.address();
  await openUpstream(world, { address: moved, port: 8888 }, (_request, response) => response.end("new pod"));
  await world.setStatus("edge", { addresses: [moved], status: "True", reason: "DependenciesReady" });
  expect((await pending).text).toBe("new pod");
});

test("router waking: a sandbox woken while it falls asleep is waited for, though its old Pod shows as failed", async () => {
  const address = world.address();
  await world.sandbox(router, "turning", { spec: auto, addresses: [], ready: asleep });
  await until(() => router.table.get("default", "turning")?.state.kind === "asleep");
  const pending = get("turning");
  await until(async () => (await stamp("turning")) !== undefined);
  await world.setStatus("turning", { addresses: [], status: "False", reason: "PodFailed", message: "Pod failed" });
  await until(() => router.table.get("default", "turning")?.state.kind === "finished");
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("back"));
  await world.setStatus("turning", { addresses: [address], status: "True", reason: "DependenciesReady" });
  expect((await pending).text).toBe("back");
});

test("router waking: a report that the suspension overtook is made again", async () => {
  const patient = await world.router({ holdLimitMs: 20_000 });
  const at = await patient.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const address = world.address();
  const held = { operatingMode: "Suspended", wakePolicy: "OnTraffic" } as const;
  await world.sandbox(patient, "crossed", { spec: held, addresses: [], ready: asleep });
  const pending = call(at, "/", { headers: { "X-Sandbox-ID": "crossed" } });
  await until(async () => (await stamp("crossed")) !== undefined);
  const suspendedAt = new Date(Date.now() + 1).toISOString();
  const body = { metadata: { annotations: { [annotationKeys.suspendedAt]: suspendedAt } } };
  await world.admin.patch(sandboxes, { namespace: "default", name: "crossed" }, { type: "merge", body });
  await until(async () => Date.parse((await stamp("crossed")) ?? "") > Date.parse(suspendedAt));
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("back"));
  await world.setStatus("crossed", { addresses: [address], status: "True", reason: "DependenciesReady" });
  expect((await pending).text).toBe("back");
});

test("router waking: a sandbox that its user has just suspended is held and not dialled", async () => {
  const address = world.address();
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("too late"));
  await world.sandbox(router, "leaving", { spec: { wakePolicy: "OnTraffic" }, addresses: [address] });
  await world.admin.patch(sandboxes, key("leaving"), { type: "merge", body: { spec: { operatingMode: "Suspended" } } });
  await until(() => router.table.get("default", "leaving")?.state.kind === "asleep");
  const pending = get("leaving");
  await until(async () => (await stamp("leaving")) !== undefined);
  await world.setStatus("leaving", { addresses: [], ...asleep });
  expect((await pending).status).toBe(503);
});

test("router waking: requests to a busy sandbox write at most four times per timeout", async () => {
  const address = world.address();
  const fresh = new Date().toISOString();
  await world.sandbox(router, "busy", {
    spec: auto,
    addresses: [address],
    annotations: { [annotationKeys.lastActivityAt]: fresh },
  });
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("ok"));
  for (let round = 0; round < 100; round += 1) await get("busy");
  expect(await stamp("busy")).toBe(fresh);
});

test("router waking: looking at the router's own pages never wakes", async () => {
  await world.sandbox(router, "dozy", { spec: auto, addresses: [], ready: asleep });
  await call(port, "/healthz");
  await world.admin.get(sandboxes, { namespace: "default", name: "dozy" });
  expect(await stamp("dozy")).toBeUndefined();
});

test("router waking: connections to a Pod that is gone are not used for its successor at the same address", async () => {
  const address = world.address();
  await world.sandbox(router, "again", { spec: auto, addresses: [address] });
  // The first Pod keeps the connection and falls silent, as one does whose network is taken away.
  let connections = 0;
  await openRawUpstream(world, { address, port: 8888 }, (socket) => {
    connections += 1;
    const isFirst = connections === 1;
    let answered = 0;
    socket.on("data", () => {
      answered += 1;
      if (!isFirst || answered === 1) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
  });
  expect((await get("again")).text).toBe("ok");
  await world.setStatus("again", { addresses: [], ...asleep });
  await until(() => router.table.get("default", "again")?.state.kind === "asleep");
  await world.setStatus("again", { addresses: [address], status: "True", reason: "DependenciesReady" });
  await until(() => router.table.get("default", "again")?.state.kind === "ready");
  expect((await get("again")).text).toBe("ok");
  expect(connections).toBe(2);
});

test("router waking: what is open to a Pod that its user suspends is cut after its grace, and does not wake it", async () => {
  const short = await world.router({ leftMs: 300 });
  const at = await short.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const address = world.address();
  const fresh = new Date().toISOString();
  const spec = { ...auto, wakePolicy: "OnTraffic" } as const;
  const annotated = { [annotationKeys.lastActivityAt]: fresh };
  await world.sandbox(short, "cut", { spec, addresses: [address], annotations: annotated });
  // It keeps the connection and falls silent, as one does whose network is taken away.
  await openRawUpstream(world, { address, port: 8888 }, (socket) => {
    socket.once("data", () => socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"));
  });
  const pending = call(at, "/", { headers: { "X-Sandbox-ID": "cut" } }).then(
    () => "whole",
    () => "cut",
  );
  await until(async () => /inflight_requests 1\n/.test(await short.metrics.metrics()));
  await world.admin.patch(sandboxes, key("cut"), { type: "merge", body: { spec: { operatingMode: "Suspended" } } });
  expect(await pending).toBe("cut");
  expect(await stamp("cut")).toBe(fresh);
});

/** Three ways to send something that the sandbox answers with `kept`. */
const knocks: Record<string, (at: number) => Promise<string>> = {
  "a request with its body": async (at) => {
    const answer = await call(at, "/", { method: "POST", body: "kept", headers: { "X-Sandbox-ID": "gone" } });
    return (JSON.parse(answer.text) as { body: string }).body;
  },
  "a WebSocket": async (at) => {
    const socket = new WebSocket(`ws://127.0.0.1:${at}/`, { headers: { "X-Sandbox-ID": "gone" } });
    await once(socket, "open");
    socket.send("kept");
    const [message] = (await once(socket, "message")) as [Buffer];
    socket.terminate();
    return message.toString();
  },
  "a gRPC call": async (at) => {
    const session = http2.connect(`http://127.0.0.1:${at}`);
    const headers = { "content-type": "application/grpc", te: "trailers", "x-sandbox-id": "gone" };
    const stream = session.request({ ":method": "POST", ":path": "/s/m", "x-sandbox-port": "9090", ...headers });
    stream.end("kept");
    const text = await streamText(stream);
    session.destroy();
    return text;
  },
};

/** A Pod that answers all three. */
async function openPod(address: string): Promise<void> {
  const server = await openUpstream(world, { address, port: 8888 }, echo);
  const sockets = new WebSocketServer({ server });
  sockets.on("connection", (socket) => socket.on("message", (message) => socket.send(message, { binary: false })));
  const calls = http2.createServer();
  calls.on("stream", (stream) => {
    stream.respond({ ":status": 200, "content-type": "application/grpc" });
    stream.pipe(stream);
  });
  calls.listen(9090, address);
  await once(calls, "listening");
  world.onClose(async () => void calls.close());
}

test.each(Object.keys(knocks))(
  "router waking: %s that knocks at a Pod just gone waits for the next one",
  async (way) => {
    // Between two attempts there is time enough for the sandbox to leave.
    const slow = { retriesMax: 1, initialDelayMs: 1_000, maxDelayMs: 1_000 };
    const patient = await world.router({ holdLimitMs: 20_000, retry: slow });
    const at = await patient.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
    const [address, moved] = [world.address(), world.address()];
    await world.sandbox(patient, "gone", { spec: { wakePolicy: "OnTraffic" }, addresses: [address] });
    const pending = knocks[way]?.(at);
    await until(async () => /inflight_requests 1\n/.test(await patient.metrics.metrics()));
    await world.setStatus("gone", { addresses: [], ...asleep });
    await until(async () => /held_requests 1\n/.test(await patient.metrics.metrics()));
    await openPod(moved);
    await world.setStatus("gone", { addresses: [moved], status: "True", reason: "DependenciesReady" });
    expect(await pending).toBe("kept");
  },
);

test("router waking: the callers of one sleeper leave room for those of another", async () => {
  const busy = await world.router({ holdLimitMs: 60_000, heldMax: 70 });
  const at = await busy.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const agent = new http.Agent();
  const knock = (name: string) => call(at, "/", { headers: { "X-Sandbox-ID": name }, agent });
  for (const name of ["flooded", "quiet"])
    await world.sandbox(busy, name, { addresses: [], ready: { status: "False", reason: "DependenciesNotReady" } });
  const held = Array.from({ length: 80 }, () => knock("flooded").catch(() => undefined));
  await until(async () => /sandbox_router_held_requests 64\n/.test(await busy.metrics.metrics()));
  const waiting = knock("quiet").catch(() => undefined);
  await until(async () => /sandbox_router_held_requests 65\n/.test(await busy.metrics.metrics()));
  agent.destroy();
  await Promise.all([...held, waiting]);
});
