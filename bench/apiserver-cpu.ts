/**
 * CPU time per request of the API server with everything the engine puts around it (RBAC, admission, our CRDs, a store
 * on disk), in process and over TLS HTTP/1.1. CPU time, not wall clock, so that a busy machine gives the same figures.
 *
 *   node bench/apiserver-cpu.ts [objects, default 2000]
 */
import { fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { createClient, systemClock } from "@agent-sandbox/kube";
import { ApiServer } from "../packages/server/src/apiserver/api-server.ts";
import { openPki } from "../packages/server/src/apiserver/auth/pki.ts";
import { isWholeBody } from "../packages/server/src/apiserver/request/api-request.ts";
import type { UserInfo } from "../packages/server/src/apiserver/request/user-info.ts";
import { createSecurity } from "../packages/server/src/apiserver/security.ts";
import { applyBootstrap, readOwnCrds } from "../packages/server/src/main/bootstrap.ts";
import { openStore } from "../packages/server/src/store/sqlite-store.ts";
import { silentLogger } from "../packages/server/src/telemetry/logger.ts";

const objects = Number(process.argv[2] ?? 2_000);
/** As many as the published figures of other servers were taken with. */
const clients = 16;
const admin: UserInfo = { username: "admin", groups: ["system:masters", "system:authenticated"] };
const base = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";

interface Call {
  readonly method: string;
  readonly path: string;
  readonly type?: string;
  readonly body?: string;
}

/** The verbs in the order in which one object meets them; `prefix` keeps two rounds apart. */
function calls(prefix: string): Record<string, (index: number) => Call> {
  const name = (index: number) => `${prefix}-${index}`;
  return {
    create: (index) => ({ method: "POST", path: base, type: "application/json", body: sandbox(name(index)) }),
    "patch-status": (index) => ({
      method: "PATCH",
      path: `${base}/${name(index)}/status`,
      type: "application/merge-patch+json",
      body: JSON.stringify({ status: { nodeName: `n${index}` } }),
    }),
    get: (index) => ({ method: "GET", path: `${base}/${name(index)}` }),
    delete: (index) => ({ method: "DELETE", path: `${base}/${name(index)}` }),
  };
}

/** About 1.5 kB once it is stored with its defaults and owners. */
function sandbox(name: string): string {
  const container = { name: "c", image: "pause", env: [{ name: "A", value: "x".repeat(400) }] };
  return JSON.stringify({
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, labels: { bench: "1" } },
    spec: { operatingMode: "Suspended", podTemplate: { spec: { containers: [container] } } },
  });
}

async function load(count: number, call: (index: number) => Promise<number>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const status = await call(next++);
      if (status >= 300) throw new Error(`a request was answered ${status}`);
    }
  };
  await Promise.all(Array.from({ length: clients }, worker));
}

/** CPU of the main thread and of the whole process (with the store's writer and the collector), per request. */
async function measured(
  count: number,
  run: () => Promise<void>,
): Promise<{ mainUs: number; allUs: number; ms: number }> {
  const startedMs = performance.now();
  const main = process.threadCpuUsage();
  const all = process.cpuUsage();
  await run();
  const mainSpent = process.threadCpuUsage(main);
  const allSpent = process.cpuUsage(all);
  return {
    mainUs: (mainSpent.user + mainSpent.system) / count,
    allUs: (allSpent.user + allSpent.system) / count,
    ms: performance.now() - startedMs,
  };
}

async function client(): Promise<void> {
  const server = JSON.parse(process.env["BENCH_SERVER"] ?? "{}") as {
    port: number;
    ca: string;
    cert: string;
    key: string;
  };
  const { port, ...credentials } = server;
  const agent = new https.Agent({ keepAlive: true, maxSockets: clients, ...credentials });
  const send = ({ method, path: target, type, body }: Call): Promise<number> =>
    new Promise((resolve, reject) => {
      const headers = type === undefined ? {} : { "content-type": type };
      const request = https.request({ agent, host: "127.0.0.1", port, method, path: target, headers }, (response) => {
        response.resume();
        response.on("end", () => resolve(response.statusCode ?? 0));
      });
      request.on("error", reject);
      request.end(body);
    });
  process.on("message", ({ verb, prefix }: { verb: string; prefix: string }) => {
    const make = calls(prefix)[verb];
    const run =
      make === undefined
        ? load(10, () => send({ method: "GET", path: base }))
        : load(objects, (index) => send(make(index)));
    run.then(
      () => process.send?.("done"),
      () => process.exit(1),
    );
  });
}

function print(place: string, verb: string, count: number, figures: Awaited<ReturnType<typeof measured>>): void {
  const { mainUs, allUs, ms } = figures;
  const rss = Math.round(process.memoryUsage.rss() / 1024 / 1024);
  console.log(
    `| ${place} | ${verb} | ${mainUs.toFixed(0)} | ${allUs.toFixed(0)} | ${Math.round(1e6 / mainUs)} | ${Math.round((count / ms) * 1000)} | ${rss} |`,
  );
}

async function serve(): Promise<void> {
  const directory = mkdtempSync(path.join(tmpdir(), "bench-apiserver-"));
  const pki = await openPki({ directory: path.join(directory, "pki"), nowMs: Date.now() });
  const store = openStore({ path: path.join(directory, "store.db"), clock: systemClock });
  const security = createSecurity({
    clock: systemClock,
    random: Math.random,
    serviceAccountKey: await pki.serviceAccountKey(),
  });
  const api = new ApiServer({ store, clock: systemClock, logger: silentLogger(), ...security });
  const attached = await security.attach(api.parts);
  await api.installCrds(readOwnCrds());
  await applyBootstrap(createClient(api.transportFor(admin)));
  console.log(
    "| where | verb | main thread, us | process, us | bound, 1/s | seen, 1/s | RSS, MiB |\n|---|---|---|---|---|---|---|",
  );
  const handle = async ({ method, path: target, type, body }: Call): Promise<number> => {
    const headers: Record<string, string> = type === undefined ? {} : { "content-type": type };
    const request = { method, path: target, user: admin, headers };
    const response = await api.handle(body === undefined ? request : { ...request, body: Buffer.from(body) });
    if (!isWholeBody(response.body)) throw new Error("a stream was not asked for");
    return response.status;
  };
  for (const round of ["warm", "in-process"]) {
    const verbs = calls(round);
    for (const [verb, make] of Object.entries(verbs)) {
      if (verb === "delete") {
        const list = await measured(10, () => load(10, () => handle({ method: "GET", path: base })));
        if (round !== "warm") print(round, `list of ${objects}`, 10, list);
      }
      const figures = await measured(objects, () => load(objects, (index) => handle(make(index))));
      if (round !== "warm") print(round, verb, objects, figures);
    }
  }
  const leaf = await pki.leaf(
    { file: "bench", commonName: "bench", use: { kind: "server", names: ["127.0.0.1"] } },
    Date.now(),
  );
  const tls = { certificate: leaf.certificatePem, key: leaf.privateKeyPem, clientCa: pki.caBundlePem };
  const listener = await api.listen({ host: "127.0.0.1", port: 0, tls });
  const user = await pki.leaf(
    { file: "user", commonName: "admin", organizations: ["system:masters"], use: { kind: "client" } },
    Date.now(),
  );
  const reach = { port: listener.port, ca: pki.caBundlePem, cert: user.certificatePem, key: user.privateKeyPem };
  const environment = { ...process.env, BENCH_SERVER: JSON.stringify(reach) };
  const child = fork(import.meta.filename, [String(objects)], { env: environment });
  const overTls = async (verb: string): Promise<void> => {
    child.send({ verb, prefix: "tls" });
    await new Promise<void>((resolve, reject) => {
      child.once("message", () => resolve());
      child.once("exit", (code) => reject(new Error(`the client ended with code ${code}`)));
    });
    child.removeAllListeners("exit");
  };
  for (const verb of ["create", "patch-status", "get", "list", "delete"]) {
    const count = verb === "list" ? 10 : objects;
    print("TLS", verb === "list" ? `list of ${objects}` : verb, count, await measured(count, () => overTls(verb)));
  }
  child.kill();
  await listener.close();
  await attached[Symbol.asyncDispose]();
  await api.close();
  await store.close();
  rmSync(directory, { recursive: true });
}

await (process.env["BENCH_SERVER"] === undefined ? serve() : client());
