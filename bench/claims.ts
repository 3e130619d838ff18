// Warm claims: a burst, then steady rates over four pools, then the highest rate that holds, then many Sandboxes and a restart.
// On `embedded` the engine's control process serves and reconciles; on `cluster` our `controller` role works against a real
// kube-apiserver with etcd (which waits for the disk), kube-controller-manager and kube-scheduler. Pods are Ready at once.
//
//   node bench/claims.ts [--engine embedded|cluster] [--burst 300] [--members 75] [--rates 5,10,20] [--seconds 10] [--search] [--many 10000]
//
// `--full` is windows of 60 seconds, the search, and 10,000 Sandboxes. A part is left out with 0 or an empty list: `--burst 0 --rates ""`.
import os from "node:os";
import { parseArgs } from "node:util";
import { namespaces, sandboxes, sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import { aPool, aTemplate, container } from "../test/cluster/claim-objects.ts";
import { type ClaimEngine, type ClaimEngineName, openClaimEngine } from "./load/claim-engine.ts";
import { ClaimWatcher, type Spread, spreadOf } from "./load/claim-watcher.ts";
import { useCompileCache } from "./load/compile-cache.ts";
import { cpuSeconds, peakMiB, residentMiB } from "./load/process-memory.ts";
import { countsSince, type RequestCounts, writesOf } from "./load/request-counts.ts";

const { values } = parseArgs({
  options: {
    engine: { type: "string", default: "embedded" },
    burst: { type: "string", default: "300" },
    members: { type: "string", default: "75" },
    rates: { type: "string" },
    seconds: { type: "string" },
    search: { type: "boolean", default: false },
    many: { type: "string" },
    full: { type: "boolean", default: false },
  },
});
const engineName = values.engine as ClaimEngineName;
const burstCount = Number(values.burst);
/** Members of each pool. */
const size = Number(values.members);
const rates = values.rates ?? (engineName === "cluster" ? "5,10,20" : "20,50,100");
const seconds = Number(values.seconds ?? (values.full ? 60 : 10));
const many = Number(values.many ?? (values.full ? 10_000 : 0));
const pools = ["pool-0", "pool-1", "pool-2", "pool-3"];
const namespace = "claims";
/** A rate holds when the worst of a hundred claims is Ready within this. */
const heldP99Ms = 1_000;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const say = (text: string): void => void process.stdout.write(`${text}\n`);
const poolOf = (index: number): string => pools[index % pools.length] ?? "";
const placed = <T extends { metadata: object }>(object: T): T => ({
  ...object,
  metadata: { ...object.metadata, namespace },
});
const loadText = (): string =>
  os
    .loadavg()
    .map((each) => each.toFixed(1))
    .join(" ");

async function fill({ admin }: ClaimEngine): Promise<void> {
  await admin.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
  // A namespace takes Pods once its service account is there.
  await sleep(1_000);
  await admin.create(sandboxTemplates, placed(aTemplate("tpl")));
  for (const pool of pools) await admin.create(sandboxWarmPools, placed(aPool(pool, "tpl", size)));
}

/** Counts members instead of asking the pools: their status follows a burst with a delay. */
async function untilFull({ admin }: ClaimEngine): Promise<void> {
  for (;;) {
    const { items } = await admin.list(sandboxes, { namespace });
    const members = items.filter(
      ({ metadata, status }) =>
        metadata.ownerReferences?.some(({ kind }) => kind === "SandboxWarmPool") === true &&
        status?.conditions?.some((each) => each.type === "Ready" && each.status === "True") === true,
    );
    if (members.length >= size * pools.length) return;
    await sleep(500);
  }
}

function describe(spread: Spread): string {
  return `p50 ${spread.p50.toFixed(0)} ms, p99 ${spread.p99.toFixed(0)} ms, max ${spread.max.toFixed(0)} ms`;
}

/** CPU seconds of everybody but the API, to see who is the bottleneck. */
function processorTimes(engine: ClaimEngine): Readonly<Record<string, number>> {
  const own = process.cpuUsage();
  return {
    controllers: cpuSeconds(engine.controllerPid()),
    kubelet: cpuSeconds(engine.kubeletPid),
    client: (own.user + own.system) / 1e6,
  };
}

function timesSince(before: Readonly<Record<string, number>>, after: Readonly<Record<string, number>>): string {
  return Object.entries(after)
    .map(([who, cpu]) => `${who} ${(cpu - (before[who] ?? 0)).toFixed(1)}`)
    .join(", ");
}

function memoryText(engine: ClaimEngine): string {
  const pid = engine.controllerPid();
  return `${residentMiB([pid]).toFixed(0)} MiB, at most ${peakMiB(pid).toFixed(0)} MiB`;
}

const writes = async ({ name, credentials }: ClaimEngine): Promise<RequestCounts> =>
  name === "cluster" ? writesOf(credentials) : {};

async function burst(engine: ClaimEngine, watcher: ClaimWatcher): Promise<void> {
  const names = Array.from({ length: burstCount }, (_, index) => `burst-${index}`);
  const [before, timesBefore] = [await writes(engine), processorTimes(engine)];
  const startMs = performance.now();
  await Promise.all(names.map((name, index) => watcher.create(name, poolOf(index))));
  await watcher.allReady();
  const totalMs = performance.now() - startMs;
  const latencies = watcher.latencies(names);
  say(
    `burst of ${burstCount}: ${latencies.length} Ready in ${totalMs.toFixed(0)} ms; ${describe(spreadOf(latencies))}`,
  );
  say(`  ${watcher.sandboxesOf(names)} different Sandboxes; CPU s: ${timesSince(timesBefore, processorTimes(engine))}`);
  say(`  writes until Ready: ${countsSince(before, await writes(engine))}`);
  await untilFull(engine);
  say(
    `  refilled after ${(performance.now() - startMs).toFixed(0)} ms; CPU s: ${timesSince(timesBefore, processorTimes(engine))}`,
  );
  say(`  writes with refill: ${countsSince(before, await writes(engine))}`);
  say(`  controllers ${memoryText(engine)}`);
}

async function steady(engine: ClaimEngine, watcher: ClaimWatcher, rate: number, forSeconds: number): Promise<Spread> {
  const run = Math.random().toString(36).slice(2, 7);
  const names = Array.from({ length: rate * forSeconds }, (_, index) => `rate-${rate}-${run}-${index}`);
  const timesBefore = processorTimes(engine);
  const startMs = performance.now();
  const sent: Promise<void>[] = [];
  for (const [index, name] of names.entries()) {
    await sleep(Math.max(0, startMs + (index * 1_000) / rate - performance.now()));
    sent.push(watcher.create(name, poolOf(index)));
  }
  await Promise.all(sent);
  await watcher.allReady();
  const latencies = watcher.latencies(names);
  const spread = spreadOf(latencies);
  const ready = latencies.length === names.length ? "all" : `${latencies.length} of ${names.length}`;
  say(
    `${rate} claims/s for ${forSeconds} s: ${ready} Ready, ${describe(spread)}; CPU s: ${timesSince(timesBefore, processorTimes(engine))}; controllers ${memoryText(engine)}`,
  );
  return latencies.length === names.length
    ? spread
    : { p50: Number.NaN, p99: Number.POSITIVE_INFINITY, max: Number.NaN };
}

/** Doubles until a rate does not hold, then halves the distance to the last that did, down to a tenth of it. */
async function highestRate(engine: ClaimEngine, watcher: ClaimWatcher): Promise<void> {
  const windowSeconds = Math.min(seconds, 15);
  const holds = async (rate: number): Promise<boolean> => {
    await untilFull(engine);
    return (await steady(engine, watcher, rate, windowSeconds)).p99 < heldP99Ms;
  };
  let held = 0;
  let failed = engineName === "cluster" ? 10 : 20;
  while (await holds(failed)) [held, failed] = [failed, failed * 2];
  while (failed - held > Math.max(2, held / 10)) {
    const middle = Math.round((held + failed) / 2);
    if (await holds(middle)) held = middle;
    else failed = middle;
  }
  say(`highest rate with p99 under ${heldP99Ms} ms: ${held} claims/s (windows of ${windowSeconds} s)`);
}

async function manySandboxes(engine: ClaimEngine, count: number): Promise<void> {
  const { admin } = engine;
  const startMs = performance.now();
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const metadata = { name: `many-${next++}`, namespace };
      const spec = { podTemplate: { spec: { containers: [container()] } } };
      await admin.create(sandboxes, { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata, spec });
    }
  };
  await Promise.all(Array.from({ length: 32 }, worker));
  const createdMs = performance.now() - startMs;
  await untilReady(engine, count);
  const readyMs = performance.now() - startMs;
  say(
    `${count} Sandboxes: created in ${(createdMs / 1000).toFixed(1)} s, all Ready after ${(readyMs / 1000).toFixed(1)} s; controllers ${memoryText(engine)}`,
  );
  const restartMs = await engine.restart();
  const servesMs = performance.now() - restartMs;
  await untilReconciled(engine, 1);
  const firstMs = performance.now() - restartMs;
  await untilReconciled(engine, count);
  const allMs = performance.now() - restartMs;
  say(
    `  restart: serves after ${servesMs.toFixed(0)} ms, first reconcile after ${firstMs.toFixed(0)} ms, all reconciled after ${allMs.toFixed(0)} ms; controllers ${memoryText(engine)}`,
  );
}

async function untilReady(engine: ClaimEngine, count: number): Promise<void> {
  for (;;) {
    const text = await engine.metrics();
    const ready = sumOf(text, /^agent_sandboxes\{[^}]*ready_condition="true"[^}]*\} (\d+)/gm);
    if (ready >= count) return;
    await sleep(500);
  }
}

async function untilReconciled(engine: ClaimEngine, count: number): Promise<void> {
  for (;;) {
    const text = await engine.metrics().catch(() => "");
    if (sumOf(text, /^controller_runtime_reconcile_total\{controller="sandbox",[^}]*\} (\d+)/gm) >= count) return;
    await sleep(20);
  }
}

function sumOf(text: string, pattern: RegExp): number {
  return [...text.matchAll(pattern)].reduce((sum, [, value]) => sum + Number(value), 0);
}

{
  useCompileCache();
  await using engine = await openClaimEngine(engineName);
  const watcher = new ClaimWatcher(engine.admin, namespace);
  const stop = new AbortController();
  await fill(engine);
  const watching = watcher.run(stop.signal);
  await untilFull(engine);
  say(
    `engine ${engineName}; load average ${loadText()} on ${os.availableParallelism()} cores; ${new Date().toISOString()}`,
  );
  if (burstCount > 0) await burst(engine, watcher);
  for (const rate of rates
    .split(",")
    .filter((each) => each !== "")
    .map(Number)) {
    await untilFull(engine);
    await steady(engine, watcher, rate, seconds);
  }
  if (values.search || values.full) await highestRate(engine, watcher);
  if (many > 0) await manySandboxes(engine, many);
  say(`load average ${loadText()}`);
  stop.abort(new Error("measured"));
  await watching;
}
