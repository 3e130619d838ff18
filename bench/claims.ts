// Warm claims: a burst, then steady rates over several pools, on our engine or on a real API server with its scheduler.
//
//   node bench/claims.ts [--engine embedded|cluster] [--burst 300] [--rates 5,10,20] [--seconds 20]
import os from "node:os";
import { parseArgs } from "node:util";
import {
  namespaces,
  type SandboxClaim,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { Informer, systemClock } from "@agent-sandbox/kube";
import { aClaim, aPool, aTemplate } from "../test/cluster/claim-objects.ts";
import { type Engine, type EngineName, openEngine } from "../test/cluster/engine.ts";
import { HttpLoad } from "./load/http-load.ts";
import { cpuSeconds, residentMiB } from "./load/process-memory.ts";

const { values } = parseArgs({
  options: {
    engine: { type: "string", default: "embedded" },
    burst: { type: "string", default: "300" },
    rates: { type: "string", default: "5,10,20" },
    seconds: { type: "string", default: "20" },
  },
});
const pools = ["pool-0", "pool-1", "pool-2", "pool-3"];
const namespace = "claims";

/** Create-to-Ready of claims as a watching client sees it. */
class Watcher {
  readonly #createdMs = new Map<string, number>();
  readonly #readyMs = new Map<string, number>();
  readonly boundTo = new Map<string, string>();

  created(name: string): void {
    this.#createdMs.set(name, performance.now());
  }

  seen({ metadata, status }: SandboxClaim): void {
    const isReady = status?.conditions?.some(({ type, status: value }) => type === "Ready" && value === "True");
    if (isReady !== true || this.#readyMs.has(metadata.name)) return;
    this.#readyMs.set(metadata.name, performance.now());
    this.boundTo.set(metadata.name, status?.sandbox?.name ?? "");
  }

  latencies(names: readonly string[]): number[] {
    const all = names.map(
      (name) => (this.#readyMs.get(name) ?? Number.NaN) - (this.#createdMs.get(name) ?? Number.NaN),
    );
    return all.filter((each) => !Number.isNaN(each)).sort((a, b) => a - b);
  }

  async ready(names: readonly string[], maxMs: number): Promise<void> {
    const endMs = performance.now() + maxMs;
    while (names.some((name) => !this.#readyMs.has(name)) && performance.now() < endMs) await sleep(10);
  }
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const say = (text: string): void => void process.stdout.write(`${text}\n`);

async function fill(engine: Engine, size: number): Promise<void> {
  const { admin } = engine;
  await admin.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
  await sleep(1_000);
  const place = <T extends { metadata: object }>(object: T): T => ({
    ...object,
    metadata: { ...object.metadata, namespace },
  });
  await admin.create(sandboxTemplates, place(aTemplate("tpl")));
  for (const pool of pools) await admin.create(sandboxWarmPools, place(aPool(pool, "tpl", size)));
  await untilFull(engine, size);
}

async function untilFull({ admin }: Engine, size: number): Promise<void> {
  for (;;) {
    const { items } = await admin.list(sandboxWarmPools, { namespace });
    if (items.every(({ status }) => (status?.readyReplicas ?? 0) >= size)) return;
    await sleep(200);
  }
}

const countedResources = /resource="(sandboxclaims|sandboxes|sandboxwarmpools|events|pods)"/;

/** Writes by resource, from the real API server's own counter; ours has none. */
async function writesOf({ credentials, name }: Engine): Promise<Record<string, number>> {
  if (name !== "cluster") return {};
  using load = new HttpLoad(credentials);
  const { text } = await load.send("GET", "/metrics");
  const counts: Record<string, number> = {};
  for (const [, labels = "", value = ""] of text.matchAll(/^apiserver_request_total\{([^}]*)\} (\S+)/gm)) {
    const verb = /verb="(POST|PUT|PATCH|APPLY|DELETE)"/.exec(labels)?.[1];
    const resource = countedResources.exec(labels)?.[1];
    if (verb === undefined || resource === undefined) continue;
    const code = /code="(\d+)"/.exec(labels)?.[1] ?? "";
    const key = `${verb} ${resource}${code.startsWith("2") ? "" : ` ${code}`}`;
    counts[key] = (counts[key] ?? 0) + Number(value);
  }
  return counts;
}

function describe(latencies: readonly number[], names: number): string {
  const at = (share: number): string =>
    (latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))] ?? 0).toFixed(0);
  return `${latencies.length} of ${names} Ready, p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, max ${at(1)} ms`;
}

async function claim(engine: Engine, watcher: Watcher, name: string, pool: string): Promise<void> {
  watcher.created(name);
  const object = aClaim(name, pool);
  await engine.admin.create(sandboxClaims, { ...object, metadata: { ...object.metadata, namespace } });
}

async function burst(engine: Engine, watcher: Watcher, count: number): Promise<void> {
  const names = Array.from({ length: count }, (_, index) => `burst-${index}`);
  const before = await writesOf(engine);
  const cpuBefore = cpuSeconds(engine.controller.pid);
  const startMs = performance.now();
  await Promise.all(names.map((name, index) => claim(engine, watcher, name, pools[index % pools.length] ?? "")));
  await watcher.ready(names, 120_000);
  const totalMs = performance.now() - startMs;
  const bound = new Set(names.map((name) => watcher.boundTo.get(name)));
  say(
    `burst of ${count}: all in ${totalMs.toFixed(0)} ms; ${describe(watcher.latencies(names), count)}; ${bound.size} different Sandboxes`,
  );
  const cpu = cpuSeconds(engine.controller.pid) - cpuBefore;
  say(
    `controller: ${cpu.toFixed(1)} CPU seconds, ${residentMiB([engine.controller.pid]).toFixed(0)} MiB; writes ${difference(before, await writesOf(engine))}`,
  );
}

function difference(before: Record<string, number>, after: Record<string, number>): string {
  return Object.entries(after)
    .filter(([key, count]) => count !== (before[key] ?? 0))
    .map(([key, count]) => `${key} ${count - (before[key] ?? 0)}`)
    .join(", ");
}

async function steady(engine: Engine, watcher: Watcher, rate: number, seconds: number): Promise<void> {
  const names = Array.from({ length: rate * seconds }, (_, index) => `rate${rate}-${index}`);
  const startMs = performance.now();
  const sent: Promise<void>[] = [];
  for (const [index, name] of names.entries()) {
    await sleep(Math.max(0, startMs + (index * 1_000) / rate - performance.now()));
    sent.push(claim(engine, watcher, name, pools[index % pools.length] ?? ""));
  }
  await Promise.all(sent);
  await watcher.ready(names, 60_000);
  say(`${rate} claims/s for ${seconds} s: ${describe(watcher.latencies(names), names.length)}`);
}

{
  await using engine = await openEngine({ name: values.engine as EngineName, fsync: true, apart: true });
  const watcher = new Watcher();
  const stop = new AbortController();
  const count = Number(values.burst);
  await fill(engine, Math.ceil(count / pools.length));
  const informer = new Informer<SandboxClaim>({
    client: engine.admin,
    resource: sandboxClaims,
    namespace,
    clock: systemClock,
  });
  informer.addHandler({ onAdd: (object) => watcher.seen(object), onUpdate: (_old, object) => watcher.seen(object) });
  const watching = informer.run(stop.signal);
  say(
    `engine ${engine.name}; load average ${os
      .loadavg()
      .map((each) => each.toFixed(1))
      .join(" ")} on ${os.availableParallelism()} cores`,
  );
  await burst(engine, watcher, count);
  for (const rate of values.rates.split(",").map(Number)) {
    await untilFull(engine, Math.ceil(count / pools.length));
    await steady(engine, watcher, rate, Number(values.seconds));
  }
  say(`${(await engine.admin.list(sandboxes, { namespace })).items.length} Sandboxes in the end`);
  stop.abort(new Error("measured"));
  await watching;
}
