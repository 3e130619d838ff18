// The API server against a real kube-apiserver with etcd, in turn, in one run, by one client program.
//
//   node bench/apiserver.ts [--objects 2000] [--many 10000] [--no-fsync] [--only ours|theirs]
//
// `--no-fsync` lets etcd skip the disk; ours always waits for it. Both are API servers alone, ours with its stand-ins and with the
// flags and the environment that the engine gives to Node; the memory of the whole engine is that of a control process, controllers included.
import os from "node:os";
import { parseArgs } from "node:util";
import { type Sandbox, sandboxes } from "@agent-sandbox/api";
import { type Credentials, createClient, httpTransport } from "@agent-sandbox/kube";
import { roleEnvironment, roleNodeFlags } from "../packages/server/src/main/supervisor.ts";
import { openCluster } from "../test/cluster/cluster.ts";
import { openEmbeddedProcess } from "../test/cluster/embedded-process.ts";
import { ApiCall } from "../test/conformance/api-call.ts";
import { installFixtures } from "../test/conformance/fixtures.ts";
import { useCompileCache } from "./load/compile-cache.ts";
import { openControlProcess } from "./load/control-process.ts";
import { HttpLoad, type LoadResult } from "./load/http-load.ts";
import { cpuSeconds, peakMiB, residentMiB } from "./load/process-memory.ts";

const { values } = parseArgs({
  options: {
    objects: { type: "string", default: "2000" },
    many: { type: "string", default: "10000" },
    "no-fsync": { type: "boolean", default: false },
    only: { type: "string" },
    "node-flag": { type: "string", multiple: true, default: [] },
  },
});
const count = Number(values.objects);
const many = Number(values.many);
const base = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const watchersCount = 100;
const watchedChanges = 50;

type Figures = Record<string, number>;

function body(index: number): string {
  const containers = [{ name: "c", image: "pause", env: [{ name: "A", value: "x".repeat(400) }] }];
  return JSON.stringify({
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: `bench-${index}`, labels: { bench: "1" } },
    spec: { operatingMode: "Suspended", podTemplate: { spec: { containers } } },
  });
}

/** Sends `requests` and notes what they did; processor time says more than rates do where others use the machine as well. */
async function noteLoad(
  { figures, load, pids }: Measured,
  name: string,
  requests: { readonly count: number; readonly send: Parameters<HttpLoad["run"]>[1] },
): Promise<void> {
  if (requests.count <= 0) return;
  const usedSeconds = (): number => pids().reduce((sum, pid) => sum + cpuSeconds(pid), 0);
  const before = usedSeconds();
  const result: LoadResult = await load.run(requests.count, requests.send);
  figures[`${name} /s`] = result.perSecond;
  figures[`${name} p50 ms`] = result.p50Ms;
  figures[`${name} p99 ms`] = result.p99Ms;
  figures[`${name}, processor ms each`] = ((usedSeconds() - before) / requests.count) * 1_000;
  if (result.failed > 0) figures[`${name} failed`] = result.failed;
}

interface Measured {
  readonly figures: Figures;
  readonly load: HttpLoad;
  readonly pids: () => number[];
}

async function measure(credentials: Credentials, pids: () => number[]): Promise<Figures> {
  using load = new HttpLoad(credentials);
  await load.open();
  const figures: Figures = {};
  const to = { figures, load, pids };
  await noteLoad(to, "create", { count, send: (i) => load.send("POST", base, body(i)) });
  const status = (i: number): string => JSON.stringify({ status: { nodeName: `n${i}` } });
  await noteLoad(to, "update status", {
    count,
    send: (i) => load.send("PATCH", `${base}/bench-${i}/status`, status(i)),
  });
  await noteLoad(to, "get", { count, send: (i) => load.send("GET", `${base}/bench-${i}`) });
  const listed = await timed(() => load.send("GET", base));
  figures[`list ${count} ms`] = listed;
  figures[`memory at ${count}, API alone, MiB`] = residentMiB(pids());
  figures[`watch: ${watchedChanges} changes to ${watchersCount} watchers ms`] = await fanOut(credentials, load);
  const more = many - count;
  await noteLoad(to, `create the next ${more}`, {
    count: more,
    send: (i) => load.send("POST", base, body(count + i)),
  });
  figures[`list ${many}, pages of 500, ms`] = await timed(() => listPages(load));
  figures[`memory at ${many}, API alone, MiB`] = residentMiB(pids());
  await noteLoad(to, "delete", { count, send: (i) => load.send("DELETE", `${base}/bench-${i}`) });
  return figures;
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await run();
  return performance.now() - startMs;
}

async function listPages(load: HttpLoad): Promise<void> {
  let token = "";
  do {
    const { text } = await load.send(
      "GET",
      `${base}?limit=500${token === "" ? "" : `&continue=${encodeURIComponent(token)}`}`,
    );
    token = (JSON.parse(text) as { metadata: { continue?: string } }).metadata.continue ?? "";
  } while (token !== "");
}

/** How long it takes until every watcher has seen every change. */
async function fanOut(credentials: Credentials, load: HttpLoad): Promise<number> {
  const transport = httpTransport(credentials);
  const client = createClient(transport);
  const { metadata } = await client.list<Sandbox>(sandboxes, { namespace: "default", limit: 1 });
  const stop = new AbortController();
  const select = { namespace: "default", resourceVersion: metadata.resourceVersion ?? "", signal: stop.signal };
  const watching = Array.from({ length: watchersCount }, async () => {
    let seen = 0;
    for await (const _ of client.watch<Sandbox>(sandboxes, select)) if (++seen === watchedChanges) return;
  });
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const totalMs = await timed(async () => {
    await load.run(watchedChanges, (i) =>
      load.send("PATCH", `${base}/bench-${i}`, '{"metadata":{"labels":{"seen":"1"}}}'),
    );
    await Promise.all(watching);
  });
  stop.abort(new Error("seen"));
  await transport.close();
  return totalMs;
}

async function prepare(credentials: Credentials, ownKinds: "install" | "present"): Promise<void> {
  const transport = httpTransport(credentials, { protocol: "http1" });
  await installFixtures(new ApiCall(transport), ownKinds);
  await transport.close();
}

async function measureTheirs(): Promise<Figures> {
  await using cluster = await openCluster({ fsync: !values["no-fsync"], controllerManager: false, scheduler: false });
  await prepare(cluster.admin, "install");
  return await measure(cluster.admin, () => cluster.daemons.map(({ pid }) => pid));
}

async function measureOurs(): Promise<Figures> {
  const flags = [...roleNodeFlags("control"), ...values["node-flag"]];
  await using embedded = await openEmbeddedProcess(flags, roleEnvironment("control"));
  await prepare(embedded.admin, "present");
  return await measure(embedded.admin, () => [embedded.pid]);
}

/** The whole engine: every Sandbox is reconciled, and its Events are kept. */
async function measureEngine(): Promise<Figures> {
  await using control = await openControlProcess(values["node-flag"]);
  using load = new HttpLoad(control.admin);
  const figures: Figures = { "engine: memory after start, MiB": residentMiB([control.pid()]) };
  for (const [from, to] of [
    [0, count],
    [count, many],
  ] as const) {
    await load.run(Math.max(0, to - from), (i) => load.send("POST", base, body(from + i)));
    await untilIdle(control.pid());
    await load.send("GET", base);
    figures[`engine: memory at ${to}, MiB`] = residentMiB([control.pid()]);
  }
  figures["engine: most memory ever, MiB"] = peakMiB(control.pid());
  return figures;
}

/** Resolves when a process has used next to no processor time for a second. */
async function untilIdle(pid: number): Promise<void> {
  for (let before = -1; ; ) {
    const used = cpuSeconds(pid);
    if (used - before < 0.1) return;
    before = used;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}

useCompileCache();
const theirs = values.only === "ours" ? {} : await measureTheirs();
const ours = values.only === "theirs" ? {} : { ...(await measureOurs()), ...(await measureEngine()) };
const load = os
  .loadavg()
  .map((each) => each.toFixed(1))
  .join(" ");
process.stdout.write(
  `load average ${load} on ${os.availableParallelism()} cores; etcd ${values["no-fsync"] ? "without" : "with"} fsync\n\n`,
);
process.stdout.write("| figure | ours | kube-apiserver + etcd | ours / theirs |\n|---|---|---|---|\n");
for (const name of new Set([...Object.keys(ours), ...Object.keys(theirs)])) {
  const [a, b] = [ours[name], theirs[name]];
  const ratio = a === undefined || b === undefined ? "" : (a / b).toFixed(2);
  process.stdout.write(`| ${name} | ${a?.toFixed(1) ?? ""} | ${b?.toFixed(1) ?? ""} | ${ratio} |\n`);
}
