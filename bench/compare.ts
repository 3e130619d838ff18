// What a person feels, in this checkout and in another one: a cold create until its first result (node), a command, reads of a file through the
// router, a warm claim and its first result (controllers), and writes and reads of the API. An engine of each runs beside the other and their rounds take turns, because single runs of the same code differ by a quarter.
// Needs root and a set-up checkout of the other code.
//
//   node bench/compare.ts --against /path/to/other/checkout --rounds 100
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { loadavg } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { configMaps } from "@agent-sandbox/api";
import type { Client } from "@agent-sandbox/kube";
import { type EngineOptions, Sandbox } from "@agent-sandbox/sdk";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine";
import { rootDir } from "../scripts/checkout.ts";
import { record } from "./load/record.ts";
import { quantile } from "./load/samples.ts";

/** The promise: not slower by more than this. */
const ratioMax = 1.05;

/** Between two rounds: a pool refills and a waiting sandbox boots, which would otherwise be measured with the next round. */
const settleMs = 700;

const poolName = "compare";
const pool = JSON.stringify({
  apiVersion: "v1",
  kind: "List",
  items: [
    {
      apiVersion: "extensions.agents.x-k8s.io/v1beta1",
      kind: "SandboxTemplate",
      metadata: { name: poolName, namespace: "default" },
      spec: {
        podTemplate: { spec: { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] } },
      },
    },
    {
      apiVersion: "extensions.agents.x-k8s.io/v1beta1",
      kind: "SandboxWarmPool",
      metadata: { name: poolName, namespace: "default" },
      spec: { replicas: 2, sandboxTemplateRef: { name: poolName } },
    },
  ],
});

const measures = [
  "cold create to first result",
  "command",
  "20 files read by the router",
  "warm claim",
  "claim to first result",
  "40 requests to the API",
] as const;
type Samples = Record<(typeof measures)[number], number[]>;

interface Contestant extends AsyncDisposable {
  readonly engine: EngineOptions;
  readonly client: Client;
  readonly samples: Samples;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

function command(checkout: string, args: readonly string[], input?: string): void {
  const options = { stdio: [input === undefined ? "ignore" : "pipe", "ignore", "inherit"], input } as const;
  const { status } = spawnSync(path.join(checkout, "agent-sandbox"), args, { ...options, stdio: [...options.stdio] });
  if (status !== 0) throw new Error(`agent-sandbox ${args.join(" ")} in ${checkout} ended with ${status}`);
}

async function open(checkout: string, work: string, name: string): Promise<Contestant> {
  const dataDir = `${work}-${name}`;
  const kubeconfig = path.join(work, `${name}.kubeconfig`);
  const [api, router, metrics] = [await freePort(), await freePort(), await freePort()];
  const at = (port: number): string => `127.0.0.1:${port}`;
  const listen = ["--listen", at(api), "--router-listen", at(router), "--metrics-listen", at(metrics)];
  command(checkout, ["up", "--detach", "--data-dir", dataDir, "--kubeconfig-out", kubeconfig, ...listen]);
  command(checkout, ["apply", "--data-dir", dataDir, "-f", "-"], pool);
  const engine = { kubeconfig, routerUrl: `https://${at(router)}` };
  const connected = await connectEngine(engine);
  return {
    engine,
    client: connected.client,
    samples: Object.fromEntries(measures.map((measure) => [measure, new Array<number>()])) as Samples,
    [Symbol.asyncDispose]: async () => {
      await connected.close();
      command(checkout, ["down", "--purge", "--data-dir", dataDir]);
    },
  };
}

/** Milliseconds that the work took, as a sample of the measure. */
async function measured<T>(samples: number[], work: () => Promise<T>): Promise<T> {
  const startMs = performance.now();
  const result = await work();
  samples.push(performance.now() - startMs);
  return result;
}

/** Ten objects, each created, changed, read and deleted. */
async function callApi(client: Client): Promise<void> {
  for (let index = 0; index < 10; index += 1) {
    const key = { namespace: "default", name: `compare-${index}` };
    await client.create(configMaps, { apiVersion: "v1", kind: "ConfigMap", metadata: key, data: { a: "1" } });
    await client.patch(configMaps, key, { type: "merge", body: { data: { a: "2" } } });
    await client.get(configMaps, key);
    await client.delete(configMaps, key);
  }
}

async function round({ engine, client, samples }: Contestant): Promise<void> {
  {
    await using box = await measured(samples["cold create to first result"], async () => {
      const made = await Sandbox.create({ engine });
      await made.run("true");
      return made;
    });
    await measured(samples.command, () => box.run("true"));
    await box.files.write("/tmp/compare", "text");
    await measured(samples["20 files read by the router"], async () => {
      for (let index = 0; index < 20; index += 1) await box.files.read("/tmp/compare");
    });
  }
  await measured(samples["40 requests to the API"], () => callApi(client));
  await sleep(settleMs);
  const startMs = performance.now();
  await using claimed = await measured(samples["warm claim"], () => Sandbox.claim(poolName, { engine }));
  await claimed.run("true");
  samples["claim to first result"].push(performance.now() - startMs);
}

const { values } = parseArgs({
  options: { against: { type: "string" }, rounds: { type: "string", default: "100" } },
});
if (values.against === undefined) throw new Error("name the other checkout with --against");
const rounds = Number(values.rounds);
const load = loadavg().map((value) => value.toFixed(2));
const work = mkdtempSync("/tmp/as-bench-compare-");
try {
  await using other = await open(values.against, work, "other");
  await using own = await open(rootDir, work, "own");
  for (let index = -2; index < rounds; index += 1) {
    // Who goes first changes from round to round; the first two rounds warm both up and do not count.
    for (const contestant of index % 2 === 0 ? [other, own] : [own, other]) {
      await round(contestant);
      await sleep(settleMs);
    }
    if (index === -1)
      for (const { samples } of [other, own]) for (const list of Object.values(samples)) list.length = 0;
  }
  const rows = measures.map((measure) => {
    const [before, after] = [other.samples[measure], own.samples[measure]];
    const ratio = quantile(after, 0.5) / quantile(before, 0.5);
    if (ratio > ratioMax) process.exitCode = 1;
    const figures = [quantile(before, 0.5), quantile(after, 0.5), quantile(before, 0.99), quantile(after, 0.99)];
    return `| ${measure} | ${figures.map((ms) => ms.toFixed(1)).join(" | ")} | ${ratio.toFixed(3)} |`;
  });
  const head = "| | other p50 ms | this p50 ms | other p99 ms | this p99 ms | ratio of medians |";
  const text = `# Two checkouts compared\n\n${rounds} rounds each, in turns; load before the run ${load.join(" ")}; at most ${ratioMax}.\n\n${head}\n|---|---|---|---|---|---|\n${rows.join("\n")}\n`;
  process.stdout.write(text);
  record("compare", text);
} finally {
  rmSync(work, { recursive: true, force: true });
}
