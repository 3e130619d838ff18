import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http2 from "node:http2";
import path from "node:path";
import { annotationKeys, type Pod, pods, sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { killRole } from "../node/engine-processes.ts";
import { execInPod } from "../node/pod-exec.ts";
import { until } from "../node/real-engine.ts";
import { EngineRouter, readyReason } from "./engine-router.ts";

/** Rounds of the race between a request and falling asleep; `npm test -- --full` runs more. */
const rounds = process.env["AGENT_SANDBOX_TEST_FULL"] === "1" ? 200 : 20;
const key = (name: string) => ({ namespace: "default", name });
const auto = { autoSuspension: { inactivityTimeoutSeconds: 2 } };

let world: EngineRouter;

beforeAll(async () => {
  world = await EngineRouter.open();
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

async function asleep(name: string): Promise<void> {
  await world.reason(name, "SandboxSuspended");
  await until(async () => (await podsOf(name)).length === 0);
}

async function podsOf(name: string): Promise<readonly Pod[]> {
  const { items } = await world.engine.client.list(pods, { namespace: "default" });
  return items.filter(({ metadata }) => metadata.ownerReferences?.some((owner) => owner.name === name));
}

/** Calls back for each Pod that is made from here on. */
async function podCreations(onCreated: (name: string) => void): Promise<AsyncDisposable> {
  const { client } = world.engine;
  const ending = new AbortController();
  const { resourceVersion = "" } = (await client.list(pods, { namespace: "default" })).metadata;
  const watching = (async () => {
    const events = client.watch(pods, { namespace: "default", resourceVersion, signal: ending.signal });
    for await (const event of events) if (event.type === "ADDED") onCreated(event.object.metadata.name);
  })().catch(() => undefined);
  return {
    [Symbol.asyncDispose]: async () => {
      ending.abort();
      await watching;
    },
  };
}

test("sleep on an engine: an idle sandbox falls asleep, and fifty callers at once wake it once", async () => {
  await world.sandbox("nap", auto);
  expect(await world.run("nap", "echo before")).toBe("before\n");
  await asleep("nap");
  const created: string[] = [];
  await using _watch = await podCreations((name) => created.push(name));
  const startMs = performance.now();
  const answers = await Promise.all(Array.from({ length: 50 }, (_each, index) => world.run("nap", `echo ${index}`)));
  expect(answers).toEqual(answers.map((_each, index) => `${index}\n`));
  expect(created).toEqual(["nap"]);
  console.log(`fifty callers of a sleeping sandbox answered within ${Math.round(performance.now() - startMs)} ms`);
});

test("sleep on an engine: looking never wakes", async () => {
  await asleep("nap");
  await world.engine.kubectl("get", "sandboxes,pods", "-o", "wide");
  await world.engine.kubectl("describe", "sandbox", "nap");
  await world.call("nobody", "/");
  expect(readyReason(await world.engine.client.get(sandboxes, key("nap")))).toBe("SandboxSuspended");
});

test("sleep on an engine: a WebSocket wakes", async () => {
  await asleep("nap");
  const { ca, cert, key: clientKey } = world.engine.credentials;
  const socket = new WebSocket(`wss://127.0.0.1:${world.port}/nothing`, {
    headers: { "X-Sandbox-ID": "nap" },
    ...({ ca, cert, key: clientKey, servername: "localhost" } as object),
  });
  // Nothing speaks WebSocket there: that the sandbox itself answers so is the proof that it was woken.
  const [, response] = (await once(socket, "unexpected-response")) as [unknown, { statusCode: number }];
  expect(response.statusCode).toBe(404);
  await world.reason("nap", "DependenciesReady");
});

test("sleep on an engine: a gRPC call wakes", async () => {
  await asleep("nap");
  const { ca, cert, key: clientKey } = world.engine.credentials;
  const tls = { ca, cert, key: clientKey, servername: "localhost" };
  const session = http2.connect(`https://127.0.0.1:${world.port}`, tls as http2.SecureClientSessionOptions);
  const stream = session.request({
    ":method": "POST",
    ":path": "/process.v1.ProcessService/Execute",
    "content-type": "application/grpc",
    te: "trailers",
    "x-sandbox-id": "nap",
    "x-sandbox-port": "9090",
  });
  // ExecuteRequest{config{command: ["true"]}} with its five bytes of framing.
  stream.end(Buffer.from([0, 0, 0, 0, 8, 0x0a, 6, 0x0a, 4, ...Buffer.from("true")]));
  stream.resume();
  let status: unknown;
  stream.once("response", (headers) => (status = headers["grpc-status"]));
  stream.once("trailers", (headers: http2.IncomingHttpHeaders) => (status = headers["grpc-status"]));
  await once(stream, "close");
  expect(status).toBe("0");
  session.destroy();
});

test("sleep on an engine: kubectl exec, cp and port-forward wake, and the caller gets what he asked for", async () => {
  await asleep("nap");
  expect(await world.engine.kubectl("exec", "nap", "--", "echo", "from exec")).toBe("from exec\n");
  await asleep("nap");
  const copy = path.join(path.dirname(world.engine.kubeconfig), "hostname");
  await world.engine.kubectl("cp", "nap:/etc/hostname", copy);
  expect((await readFile(copy, "utf8")).trim()).toBe("nap");
  await asleep("nap");
  const [program = "", ...args] = world.engine.kubectlArgv();
  const forward = spawn(program, [...args, "port-forward", "pod/nap", ":49900"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(forward.stdout, "data")) as [Buffer];
  const port = /127\.0\.0\.1:(\d+)/.exec(line.toString())?.[1];
  const answer = await fetch(`http://127.0.0.1:${port}/v1/health`);
  expect(answer.status).toBe(200);
  await answer.body?.cancel();
  forward.kill();
});

test("sleep on an engine: exec by the API wakes", async () => {
  await asleep("nap");
  const question = { namespace: "default", pod: "nap", command: ["echo", "awake"] };
  expect(await execInPod(world.engine.credentials, question)).toMatchObject({ exitCode: 0, stdout: "awake\n" });
});

test.each(["as it fell asleep", "whose helper was killed since"])(
  "sleep on an engine: a TCP connection to the address of a sleeping sandbox, %s, wakes it and is answered",
  async (what) => {
    await asleep("nap");
    if (what.includes("killed")) await killRole(world.engine, "sandbox-host");
    const { metadata } = await world.engine.client.get(sandboxes, key("nap"));
    const address = metadata.annotations?.["agent-sandbox.dev/address"];
    // A helper that has just come back may have to be told first what sleeps.
    const program = `const ask = (left) => fetch("http://${address}:49900/v1/health").then((answer) => answer.text()).then(console.log,
      (error) => left > 0 ? setTimeout(ask, 100, left - 1) : Promise.reject(error)); ask(${what.includes("killed") ? 100 : 0})`;
    expect(world.engine.place.must(process.execPath, "-e", program)).toContain('"status":"ok"');
  },
);

test("sleep on an engine: of TCP connections that come while a sandbox wakes none reaches it before it is ready, and all are answered", async () => {
  const command = ["sh", "-c", "sleep 1; exec python3 -m http.server 8000"];
  const readinessProbe = { tcpSocket: { port: 8000 }, periodSeconds: 1 };
  const server = { name: "main", image: "host", command, readinessProbe };
  await world.sandbox("late", {
    autoSuspension: { inactivityTimeoutSeconds: 2 },
    podTemplate: { spec: { terminationGracePeriodSeconds: 0, containers: [server] } },
  });
  const { metadata } = await world.reason("late", "DependenciesReady");
  await asleep("late");
  const url = `http://${metadata.annotations?.["agent-sandbox.dev/address"]}:8000/`;
  const program = `const ask = () => fetch(${JSON.stringify(url)}, { headers: { connection: "close" } }).then(({ status }) => status, (error) => error.cause?.code ?? String(error));
    const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const asked = []; for (let i = 0; i < 30; i += 1) { asked.push(ask()); await pause(100); }
    console.log(JSON.stringify([...new Set(await Promise.all(asked))]));`;
  expect(world.engine.place.must(process.execPath, "--input-type=module", "-e", program)).toBe("[200]\n");
});

test("sleep on an engine: an open exec keeps a sandbox awake, and so does a process that was left behind", async () => {
  // Long enough that a node on a busy machine looks at it in time.
  await world.sandbox("used", { autoSuspension: { inactivityTimeoutSeconds: 4 } });
  const question = { namespace: "default", pod: "used", command: ["sh", "-c", "sleep 6; echo done"] };
  expect(await execInPod(world.engine.credentials, question)).toMatchObject({ exitCode: 0, stdout: "done\n" });
  const [before] = await podsOf("used");
  await world.startDetached("used", ["sleep", "7"]);
  await new Promise((resolve) => setTimeout(resolve, 6_000));
  expect((await podsOf("used")).map(({ metadata }) => metadata.uid)).toEqual([before?.metadata.uid]);
  await asleep("used");
});

test("sleep on an engine: a connection from this machine keeps an awake sandbox awake until it ends", async () => {
  const server = { name: "main", image: "host", command: ["python3", "-m", "http.server", "8000"] };
  await world.sandbox("dialled", {
    autoSuspension: { inactivityTimeoutSeconds: 4 },
    podTemplate: { spec: { terminationGracePeriodSeconds: 0, containers: [server] } },
  });
  const { status } = await world.reason("dialled", "DependenciesReady");
  const [before] = await podsOf("dialled");
  const program = `const net = require("node:net");
    const dial = () => net.connect(8000, "${status?.podIPs?.[0]}").on("error", () => setTimeout(dial, 50)).on("connect", () => console.log("connected"));
    dial();`;
  const holder = spawn(...world.engine.place.inside(process.execPath, "-e", program));
  await once(holder.stdout, "data");
  await new Promise((resolve) => setTimeout(resolve, 8_000));
  expect((await podsOf("dialled")).map(({ metadata }) => metadata.uid)).toEqual([before?.metadata.uid]);
  holder.kill();
  await once(holder, "exit");
  await asleep("dialled");
});

test("sleep on an engine: an open stream keeps a sandbox awake", async () => {
  await world.sandbox("busy", auto);
  expect(await world.run("busy", "sleep 6")).toBe("");
  const stamp = (await world.engine.client.get(sandboxes, key("busy"))).metadata.annotations?.[
    annotationKeys.lastActivityAt
  ];
  expect(Date.now() - Date.parse(stamp ?? "")).toBeLessThan(3_000);
});

test("sleep on an engine: a sandbox that its owner holds is not woken, and the caller is told", async () => {
  await world.sandbox("held", { operatingMode: "Suspended" });
  await world.reason("held", "SandboxSuspended");
  const answer = await world.call("held", "/");
  expect(answer.status).toBe(409);
  expect(answer.text).toContain("agent-sandbox resume held");
});

test(`sleep on an engine: ${rounds} requests at the very moment of falling asleep, none lost`, async () => {
  await world.sandbox("edge", { autoSuspension: { inactivityTimeoutSeconds: 1 } });
  // Idle time begins when it is ready; by then it may be asleep again.
  expect(await world.run("edge", "echo first")).toBe("first\n");
  const lost: string[] = [];
  const waits: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const { metadata } = await world.engine.client.get(sandboxes, key("edge"));
    const activeMs = Date.parse(
      metadata.annotations?.[annotationKeys.lastActivityAt] ?? metadata.creationTimestamp ?? "",
    );
    // Around the instant at which the timeout ends, a little earlier or later each time.
    const aimMs = activeMs + 1_000 + ((round * 37) % 160) - 80;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, aimMs - Date.now())));
    const startMs = performance.now();
    await world.run("edge", `echo ${round}`).then(
      (text) => text === `${round}\n` || lost.push(`${round}: ${JSON.stringify(text)}`),
      (error: unknown) => lost.push(`${round}: ${String(error)}`),
    );
    waits.push(performance.now() - startMs);
  }
  expect(lost).toEqual([]);
  waits.sort((a, b) => a - b);
  console.log(`p50 ${Math.round(waits[waits.length >> 1] ?? 0)} ms, p99 ${Math.round(waits.at(-1) ?? 0)} ms`);
}, 600_000);
