/** Requests per second through the router, authorisation on, next to nginx in front of the same server in the same run. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { componentUser } from "../packages/server/src/apiserver/auth/components.ts";
import { writeKubeconfig } from "../packages/server/src/apiserver/auth/kubeconfig.ts";
import { openPki } from "../packages/server/src/apiserver/auth/pki.ts";
import { call } from "../test/router/http-call.ts";
import { RouterWorld, until } from "../test/router/router-world.ts";

const seconds = Number(process.env["BENCH_SECONDS"] ?? 5);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 3);
const connections = 50;
const sandboxAddress = "127.9.9.9";
/** The share of nginx's rate that the router must reach: one and a half times the reference router's. */
const ratioWanted = 0.22;
const p99MsMax = 10;

const rootDir = path.resolve(import.meta.dirname, "..");
const servers = readFileSync(path.join(rootDir, "node_modules/.agent-sandbox/servers"), "utf8").trim();
const libraries = path.join(servers, "usr/lib/x86_64-linux-gnu");
const directory = mkdtempSync(path.join(tmpdir(), "bench-router-"));
const children: ChildProcess[] = [];

interface Figures {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly failures: number;
}

/** One run of wrk with one thread. */
async function measure(port: number, headers: Record<string, string>): Promise<Figures> {
  const script = path.join(directory, "report.lua");
  writeFileSync(
    script,
    `done = function(s, l) io.write(string.format("\\nRESULT %f %f %f %d\\n", s.requests / (s.duration / 1e6), l:percentile(50) / 1000, l:percentile(99) / 1000, s.errors.status + s.errors.connect + s.errors.read + s.errors.timeout)) end`,
  );
  const flags = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const argv = ["-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, ...flags, `http://127.0.0.1:${port}/small`];
  // The API server that answers the router's questions is in this process: it must not stand still meanwhile.
  const run = spawn(path.join(servers, "usr/bin/wrk"), argv, {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, LD_LIBRARY_PATH: libraries },
  });
  const output = await text(run.stdout);
  const [, rate, p50, p99, failures] = /RESULT (\S+) (\S+) (\S+) (\d+)/.exec(output) ?? [];
  if (rate === undefined) throw new Error(`wrk failed: ${output}`);
  return { requestsPerSecond: Number(rate), p50Ms: Number(p50), p99Ms: Number(p99), failures: Number(failures) };
}

function startNginx(name: string, body: string): void {
  const config = path.join(directory, `${name}.conf`);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (kind) => `${kind}_temp_path ${directory}/${name}-${kind};`,
  );
  writeFileSync(
    config,
    `daemon off; master_process off; worker_processes 1; pid ${directory}/${name}.pid; error_log stderr warn;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; ${temporary.join(" ")}
${body} }`,
  );
  const nginx = path.join(servers, "usr/sbin/nginx");
  children.push(
    spawn(nginx, ["-c", config, "-p", directory], {
      stdio: ["ignore", "ignore", "inherit"],
      env: { ...process.env, LD_LIBRARY_PATH: libraries },
    }),
  );
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as net.AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The router as a process of its own, against an API server over TLS. */
async function startRouter(world: RouterWorld, ports: { proxy: number; probes: number }): Promise<ChildProcess> {
  const pki = await openPki({ directory, nowMs: Date.now() });
  const use = { kind: "server", names: ["127.0.0.1"] } as const;
  const leaf = await pki.leaf({ file: "apiserver", commonName: "api", use }, Date.now());
  const tls = { certificate: leaf.certificatePem, key: leaf.privateKeyPem, clientCa: pki.caBundlePem };
  const listener = await world.api.listen({ host: "127.0.0.1", port: 0, tls });
  world.onClose(() => listener.close());
  const user = componentUser("sandbox-router");
  const organizations = user.groups.filter((group) => group !== "system:authenticated");
  const request = { file: "client", commonName: user.username, organizations, use: { kind: "client" } } as const;
  const kubeconfig = path.join(directory, "kubeconfig");
  await writeKubeconfig(kubeconfig, {
    server: `https://127.0.0.1:${listener.port}`,
    caBundlePem: pki.caBundlePem,
    credentials: await pki.leaf(request, Date.now()),
    name: "bench",
    namespace: "default",
  });
  const module = path.join(rootDir, "packages/server/src/main/router-process.ts");
  const program = `import { runProcess } from ${JSON.stringify(module)}; process.exit(await runProcess(process.argv.slice(1)));`;
  const flags = [
    `--kubeconfig=${kubeconfig}`,
    `--http-bind-address=127.0.0.1:${ports.proxy}`,
    `--health-probe-bind-address=127.0.0.1:${ports.probes}`,
    "--metrics-bind-address=",
    "--access-log=false",
    "--shutdown-delay=0s",
    "--max-requests-per-sandbox=1024",
  ];
  const profile =
    process.env["BENCH_PROFILE"] === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${process.env["BENCH_PROFILE"]}`];
  const argv = [
    "--disable-warning=ExperimentalWarning",
    ...profile,
    "--input-type=module",
    "-e",
    program,
    "--",
    ...flags,
  ];
  const child = spawn(process.execPath, argv, { stdio: ["ignore", "inherit", "inherit"] });
  children.push(child);
  await until(async () => (await call(ports.probes, "/readyz").catch(() => undefined))?.status === 200, 20_000);
  return child;
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

function residentMiB(pid: number): number {
  const match = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Math.round(Number(match?.[1] ?? 0) / 1024);
}

function median(figures: readonly Figures[]): Figures {
  return [...figures].sort((a, b) => a.requestsPerSecond - b.requestsPerSecond)[figures.length >> 1] as Figures;
}

const [backend, proxy, routed, probes] = [await freePort(), await freePort(), await freePort(), await freePort()];
const world = await RouterWorld.open();
try {
  startNginx("backend", `server { listen ${sandboxAddress}:${backend}; location / { return 200 "a small body\\n"; } }`);
  startNginx(
    "proxy",
    `upstream box { server ${sandboxAddress}:${backend}; keepalive 64; keepalive_requests 1000000000; }
server { listen 127.0.0.1:${proxy}; location / { proxy_pass http://box; proxy_http_version 1.1; proxy_set_header Connection ""; } }`,
  );
  const seed = await world.router();
  await world.sandbox(seed, "box", { addresses: [sandboxAddress] });
  const token = await world.token("default", "bench");
  await world.grantConnect("default", { kind: "ServiceAccount", name: "bench", namespace: "default" });
  const router = await startRouter(world, { proxy: routed, probes });
  const headers = { "X-Sandbox-ID": "box", "X-Sandbox-Port": String(backend), Authorization: `Bearer ${token}` };
  const figures: Record<"nginx" | "router", Figures[]> = { nginx: [], router: [] };
  await measure(routed, headers);
  for (let round = 0; round < rounds; round += 1) {
    figures.nginx.push(await measure(proxy, {}));
    figures.router.push(await measure(routed, headers));
  }
  const [nginx, ours] = [median(figures.nginx), median(figures.router)];
  const ratio = ours.requestsPerSecond / nginx.requestsPerSecond;
  const rssMiB = residentMiB(router.pid ?? 0);
  const p99Ratio = ours.p99Ms / nginx.p99Ms;
  const ratios = { ratio: Number(ratio.toFixed(3)), p99Ratio: Number(p99Ratio.toFixed(2)) };
  console.log(JSON.stringify({ bench: "router", connections, nginx, router: ours, ...ratios, rssMiB }));
  if (ratio < ratioWanted || ours.p99Ms >= p99MsMax || ours.failures > 0) process.exitCode = 1;
} finally {
  for (const child of children) child.kill("SIGTERM");
  await Promise.all(children.map(ended));
  await world[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true });
}
