import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import http2 from "node:http2";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import { writeKubeconfig } from "../../packages/server/src/apiserver/auth/kubeconfig.ts";
import { openPki } from "../../packages/server/src/apiserver/auth/pki.ts";
import { mintScopedToken } from "../../packages/server/src/router/access/scoped-token.ts";
import { call } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { echo, openUpstream } from "./upstream.ts";

let world: RouterWorld;
/** A process on a busy machine. */
const patience = { timeout: 15_000 };
const directory = mkdtempSync(path.join(tmpdir(), "router-process-"));
const kubeconfig = path.join(directory, "router.kubeconfig");
const program = `import { runProcess } from ${JSON.stringify(path.resolve(import.meta.dirname, "../../packages/server/src/main/router-process.ts"))}; process.exit(await runProcess(process.argv.slice(1)));`;

beforeAll(async () => {
  world = await RouterWorld.open();
  const pki = await openPki({ directory, nowMs: Date.now() });
  const user = componentUser("sandbox-router");
  const leaf = await pki.leaf(
    { file: "apiserver", commonName: "api", use: { kind: "server", names: ["127.0.0.1"] } },
    Date.now(),
  );
  const tls = { certificate: leaf.certificatePem, key: leaf.privateKeyPem, clientCa: pki.caBundlePem };
  const listener = await world.api.listen({ host: "127.0.0.1", port: 0, tls });
  world.onClose(() => listener.close());
  const organizations = user.groups.filter((group) => group !== "system:authenticated");
  const credentials = await pki.leaf(
    { file: "client", commonName: user.username, organizations, use: { kind: "client" } },
    Date.now(),
  );
  const server = `https://127.0.0.1:${listener.port}`;
  await writeKubeconfig(kubeconfig, {
    server,
    caBundlePem: pki.caBundlePem,
    credentials,
    name: "test",
    namespace: "default",
  });
  const router = await world.router();
  const address = await world.sandbox(router, "box");
  await openUpstream(world, { address, port: 8888 }, echo);
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

interface Run {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  readonly output: () => string;
}

function start(args: readonly string[], environment: Record<string, string> = {}): Run {
  const { PATH = "", HOME: _home, KUBECONFIG: _kubeconfig, ...rest } = process.env;
  const env = { PATH, HOME: directory, NODE_OPTIONS: rest["NODE_OPTIONS"] ?? "", ...environment };
  const child = spawn(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", program, "--", ...args],
    { env },
  );
  const chunks: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  return {
    child,
    exited: once(child, "close").then(([code]) => code as number | null),
    output: () => Buffer.concat(chunks).toString(),
  };
}

async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => net.createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => (server.address() as net.AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

test("router process: bad configuration ends with 2 and says what is wrong", async () => {
  const run = start(["--authz-mode=open"]);
  expect(await run.exited).toBe(2);
  expect(run.output()).toContain('--authz-mode "open" is not');
  const short = path.join(directory, "short");
  writeFileSync(short, "too short\n");
  const secret = start(["--authz-mode=scoped-token", `--authz-scoped-token-secret-file=${short}`]);
  expect(await secret.exited).toBe(2);
  expect(secret.output()).toContain("at least 32");
});

test("router process: the version is printed and ends with 0", async () => {
  const run = start(["--version"]);
  expect(await run.exited).toBe(0);
  expect(run.output()).toMatch(/^sandbox-router, version \S+ \(revision: /);
});

test("router process: no credentials end with 1", async () => {
  const [probes = 0] = await freePorts(1);
  const run = start(["--metrics-bind-address=", `--health-probe-bind-address=127.0.0.1:${probes}`]);
  expect(await run.exited).toBe(1);
});

test("router process: a taken port ends with 1 and is never ready", async () => {
  const [taken = 0, probes = 0] = await freePorts(2);
  const blocker = net.createServer().listen(taken, "127.0.0.1");
  const run = start([
    `--kubeconfig=${kubeconfig}`,
    `--http-bind-address=127.0.0.1:${taken}`,
    "--metrics-bind-address=",
    `--health-probe-bind-address=127.0.0.1:${probes}`,
    "--shutdown-timeout=0s",
  ]);
  const states = new Set<number>();
  const watching = setInterval(
    () =>
      void call(probes, "/readyz").then(
        ({ status }) => states.add(status),
        () => undefined,
      ),
    10,
  );
  expect(await run.exited).toBe(1);
  clearInterval(watching);
  expect(states.has(200)).toBe(false);
  expect(run.output()).toContain("EADDRINUSE");
  blocker.close();
});

test("router process: serves, says so on its probes, counts, and ends cleanly", async () => {
  const [proxy = 0, metrics = 0, probes = 0] = await freePorts(3);
  const run = start(
    [
      `--http-bind-address=127.0.0.1:${proxy}`,
      `--metrics-bind-address=127.0.0.1:${metrics}`,
      `--health-probe-bind-address=127.0.0.1:${probes}`,
      "--allow-loopback-pod-ip",
      "--shutdown-delay=300ms",
    ],
    { KUBECONFIG: kubeconfig, ROUTER_AUTH_TOKEN: "from the environment" },
  );
  const ready = async () => (await call(probes, "/readyz").catch(() => undefined))?.text;
  await expect.poll(ready, patience).toBe("ok");
  expect((await call(probes, "/healthz")).text).toBe('{"status":"ok"}');
  expect((await call(proxy, "/", { headers: { "X-Sandbox-ID": "box" } })).status).toBe(401);
  const headers = { "X-Sandbox-ID": "box", Authorization: "Bearer from the environment" };
  expect((await call(proxy, "/x", { headers })).status).toBe(200);
  const text = (await call(metrics, "/metrics")).text;
  expect(text).toContain('sandbox_router_requests_total{method="GET",code="200",sandbox_namespace="default"} 1');
  expect(text).toMatch(/sandbox_router_build_info\{git_version="[^"]+"/);
  expect(run.output()).toContain('"msg":"request"');
  expect(run.output()).not.toContain("from the environment");
  run.child.kill("SIGTERM");
  await expect.poll(ready).toBe("draining");
  expect((await call(proxy, "/x", { headers })).status).toBe(200);
  expect(await run.exited).toBe(0);
});

test("router process: probes answer while the API server does not (G17)", async () => {
  const [proxy = 0, probes = 0] = await freePorts(2);
  const silent = net.createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const text = readFileSync(kubeconfig, "utf8");
  const lost = path.join(directory, "lost.kubeconfig");
  const { port } = silent.address() as net.AddressInfo;
  writeFileSync(lost, text.replace(/https:\/\/127\.0\.0\.1:\d+/, `https://127.0.0.1:${port}`));
  const run = start([
    `--kubeconfig=${lost}`,
    `--http-bind-address=127.0.0.1:${proxy}`,
    "--metrics-bind-address=",
    `--health-probe-bind-address=127.0.0.1:${probes}`,
  ]);
  await expect.poll(async () => (await call(probes, "/healthz").catch(() => undefined))?.status, patience).toBe(200);
  expect((await call(probes, "/readyz")).status).toBe(503);
  run.child.kill("SIGKILL");
  await run.exited;
  silent.close();
});

/** A collector of spans that remembers who called it. */
async function openCollector(): Promise<{ endpoint: string; exports: Buffer[] }> {
  const exports: Buffer[] = [];
  const server = http2.createServer();
  server.on("stream", (stream, headers) => {
    const chunks: Buffer[] = [];
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("end", () => {
      if (headers[":path"]?.endsWith("TraceService/Export") === true) exports.push(Buffer.concat(chunks));
      stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.once("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
      stream.end(Buffer.alloc(5));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  world.onClose(() => new Promise((resolve) => server.close(resolve)));
  return { endpoint: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`, exports };
}

test("router process: keys and limits follow their files, spans reach the collector (G19)", async () => {
  const [proxy = 0, probes = 0] = await freePorts(2);
  const { endpoint, exports } = await openCollector();
  const [config, secretFile] = [path.join(directory, "router.yaml"), path.join(directory, "secret")];
  const [first, second] = [Buffer.alloc(32, "a"), Buffer.alloc(32, "b")];
  writeFileSync(secretFile, first);
  writeFileSync(config, "authz-mode: scoped-token\nmax-request-body-bytes: 0\n");
  const run = start(
    [
      `--config=${config}`,
      `--authz-scoped-token-secret-file=${secretFile}`,
      `--http-bind-address=127.0.0.1:${proxy}`,
      "--metrics-bind-address=",
      `--health-probe-bind-address=127.0.0.1:${probes}`,
      "--shutdown-delay=0s",
    ],
    { KUBECONFIG: kubeconfig, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_BSP_SCHEDULE_DELAY: "50" },
  );
  await expect.poll(async () => (await call(probes, "/readyz").catch(() => undefined))?.text, patience).toBe("ok");
  const scope = { namespace: "default", name: "box", expiresAtSeconds: Math.floor(Date.now() / 1000) + 600 };
  const post = async (secret: Buffer): Promise<number> => {
    const Authorization = `Bearer ${mintScopedToken(scope, secret)}`;
    const headers = { "X-Sandbox-ID": "box", Authorization };
    return (await call(proxy, "/x", { method: "POST", body: "a body of some length", headers })).status;
  };
  expect([await post(first), await post(second)]).toEqual([200, 401]);
  writeFileSync(secretFile, second);
  await expect.poll(() => post(second), patience).toBe(200);
  expect(await post(first)).toBe(401);
  writeFileSync(secretFile, "too short");
  await expect.poll(() => run.output(), patience).toContain("the old keys stay");
  expect(await post(second)).toBe(200);
  writeFileSync(config, "authz-mode: scoped-token\nmax-request-body-bytes: 5\n");
  await expect.poll(() => post(second), patience).toBe(413);
  writeFileSync(config, "max-request-body-bytes: [5]\n");
  await expect.poll(() => run.output(), patience).toContain("what it said before stays");
  expect(await post(second)).toBe(413);
  await expect.poll(() => Buffer.concat(exports).includes("HTTP POST"), patience).toBe(true);
  expect(Buffer.concat(exports).includes("sandbox-router")).toBe(true);
  run.child.kill("SIGTERM");
  expect(await run.exited).toBe(0);
}, 120_000);
