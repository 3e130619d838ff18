/**
 * Start, command and stop of one sandbox through the whole engine, as ratios to bare `runsc` in the same run, and many
 * sandboxes at once:
 *
 *   node bench/node.ts [--rounds=20] [--many=100]
 */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ignore, type Pod, pods } from "@agent-sandbox/api";
import { readSetup } from "../scripts/checkout.ts";
import { processTable } from "../test/node/footprint.ts";
import { isReady, RealEngine } from "../test/node/real-engine.ts";

function flag(name: string, fallback: number): number {
  const text = process.argv.find((word) => word.startsWith(`--${name}=`))?.split("=")[1];
  return text === undefined ? fallback : Number(text);
}

const rounds = flag("rounds", 20);
const many = flag("many", 100);

/** A crowd that is not there by then will not come. */
const crowdLimitMs = 300_000;

/** Latencies in milliseconds. */
class Samples {
  readonly #all: number[] = [];

  async time<T>(work: () => Promise<T>): Promise<T> {
    const startMs = performance.now();
    const result = await work();
    this.#all.push(performance.now() - startMs);
    return result;
  }

  at(share: number): number {
    const sorted = this.#all.toSorted((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  }
}

/** `runsc` by itself, with the options the engine uses, on a root of this machine's /usr. */
class BareRuntime {
  readonly #engine: RealEngine;
  readonly #work = mkdtempSync("/tmp/as-bare-");

  constructor(engine: RealEngine) {
    this.#engine = engine;
    const root = path.join(this.#work, "bundle/rootfs");
    for (const dir of ["usr", "proc", "dev", "tmp", "etc"]) mkdirSync(path.join(root, dir), { recursive: true });
    const config = {
      ociVersion: "1.0.2",
      process: { user: { uid: 0, gid: 0 }, args: ["/usr/bin/sleep", "infinity"], env: ["PATH=/usr/bin"], cwd: "/" },
      root: { path: "rootfs", readonly: true },
      mounts: [
        { destination: "/proc", type: "proc", source: "proc" },
        { destination: "/lib64", type: "bind", source: "/usr/lib64", options: ["bind", "ro"] },
        { destination: "/lib", type: "bind", source: "/usr/lib", options: ["bind", "ro"] },
        { destination: "/usr", type: "bind", source: "/usr", options: ["bind", "ro"] },
      ],
      linux: { namespaces: ["pid", "network", "ipc", "uts", "mount"].map((type) => ({ type })) },
    };
    for (const dir of ["lib", "lib64"]) mkdirSync(path.join(root, dir), { recursive: true });
    writeFileSync(path.join(this.#work, "bundle/config.json"), JSON.stringify(config));
  }

  async #call(...args: readonly string[]): Promise<void> {
    const options = [`--root=${this.#work}/state`, "--platform=systrap", "--overlay2=none", "--ignore-cgroups"];
    const [program, argv] = this.#engine.place.inside(readSetup().runsc, ...options, ...args);
    // A detached sandbox keeps its caller's output open, so it gets a file.
    const log = openSync(path.join(this.#work, "out"), "a");
    const child = spawn(program, argv, { stdio: ["ignore", log, log] });
    const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
    if (code !== 0)
      throw new Error(`runsc ${args[0]}: ${code} ${readFileSync(path.join(this.#work, "out"), "utf8").slice(-500)}`);
  }

  run(id: string): Promise<void> {
    return this.#call("run", "--detach", "--bundle", path.join(this.#work, "bundle"), id);
  }

  exec(id: string): Promise<void> {
    return this.#call("exec", id, "/usr/bin/true");
  }

  stop(id: string): Promise<void> {
    return this.#call("delete", "--force", id);
  }

  async close(): Promise<void> {
    this.#engine.place.run(["sh", "-c", `umount ${this.#work}/state/null-netns 2>/dev/null; true`]);
    rmSync(this.#work, { recursive: true, force: true });
  }
}

/** Resolves when a pod is Ready, told by a watch that is open before the pod is made. */
async function startAndWait(engine: RealEngine, name: string): Promise<void> {
  const stop = new AbortController();
  const events = engine.client.watch(pods, {
    namespace: "default",
    fieldSelector: `metadata.name=${name}`,
    signal: stop.signal,
  });
  const ready = (async () => {
    for await (const event of events) if (event.type !== "BOOKMARK" && isReady(event.object as Pod)) return;
  })();
  await engine.startPod(name);
  await ready;
  stop.abort();
}

/** Asks a pod to end, as `kubectl delete` does, and resolves when it is gone from the node and the API. */
async function stopAndWait(engine: RealEngine, name: string): Promise<void> {
  const key = { namespace: "default", name };
  await engine.client.delete(pods, key, { gracePeriodSeconds: 30 });
  while ((await engine.client.get(pods, key).catch(ignore("NotFound"))) !== undefined) await sleep(5);
}

interface Figures {
  readonly ours: Samples;
  readonly bare: Samples;
}

async function measureOne(engine: RealEngine): Promise<Record<"start" | "exec" | "stop", Figures>> {
  const bare = new BareRuntime(engine);
  const figures = {
    start: { ours: new Samples(), bare: new Samples() },
    exec: { ours: new Samples(), bare: new Samples() },
    stop: { ours: new Samples(), bare: new Samples() },
  };
  try {
    // The first of each pays for what is made once: the image's tree, compiled code, open connections.
    for (let round = -2; round < rounds; round++) {
      const id = `one-${round + 2}`;
      const timed = <T>(samples: Samples, work: () => Promise<T>): Promise<T> =>
        round < 0 ? work() : samples.time(work);
      await timed(figures.start.bare, () => bare.run(id));
      await timed(figures.exec.bare, () => bare.exec(id));
      await timed(figures.stop.bare, () => bare.stop(id));
      await timed(figures.start.ours, () => startAndWait(engine, id));
      await timed(figures.exec.ours, () => engine.run(id, ["/usr/bin/true"]));
      await timed(figures.stop.ours, () => stopAndWait(engine, id));
    }
  } finally {
    await bare.close();
  }
  return figures;
}

interface Crowd {
  readonly seconds: number;
  readonly mebibytesEach: number;
}

async function measureMany(engine: RealEngine): Promise<Crowd> {
  const names = Array.from({ length: many }, (_, index) => `many-${index}`);
  const startMs = performance.now();
  await Promise.all(names.map((name) => engine.startPod(name)));
  let ready = 0;
  while (ready < many) {
    await sleep(250);
    ready = (await engine.client.list(pods, { namespace: "default" })).items.filter(isReady).length;
    if (performance.now() - startMs > crowdLimitMs) throw new Error(`only ${ready} of ${many} sandboxes came up`);
  }
  const seconds = (performance.now() - startMs) / 1000;
  const sandboxes = processTable().filter(
    ({ command }) => command.startsWith("runsc-") && command.includes(engine.dataDir),
  );
  const kibibytes = sandboxes.map(({ pid }) => proportionalKibibytes(pid)).reduce((sum, value) => sum + value, 0);
  return { seconds, mebibytesEach: kibibytes / 1024 / many };
}

function proportionalKibibytes(pid: number): number {
  try {
    return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

function report(figures: Record<string, Figures>, crowd: Crowd | undefined, load: string): string {
  const row = ([name, { ours, bare }]: [string, Figures]): string => {
    const cells = [0.5, 0.99].flatMap((share) => [
      ours.at(share).toFixed(0),
      bare.at(share).toFixed(0),
      (ours.at(share) / bare.at(share)).toFixed(2),
    ]);
    return `| ${name} | ${cells.join(" | ")} |`;
  };
  const crowdText =
    crowd === undefined
      ? ""
      : `\n${many} sandboxes at once: all Ready after ${crowd.seconds.toFixed(1)} s, ${crowd.mebibytesEach.toFixed(1)} MiB each (sentry and gofer, proportional set size).\n`;
  return `# Node

One sandbox through the whole engine (API request to Ready, command by the exec subresource, deletion to gone) beside bare \`runsc\` (\`run --detach\`, \`exec\`, \`delete --force\`) in the same run; ${rounds} rounds, milliseconds. Load average of the machine before the run: ${load}.

| | p50 | bare | ratio | p99 | bare | ratio |
|---|---|---|---|---|---|---|
${Object.entries(figures).map(row).join("\n")}
${crowdText}
Made by \`npm run bench -- node\`.
`;
}

const load = readFileSync("/proc/loadavg", "utf8").split(" ").slice(0, 3).join(" ");
const engine = await RealEngine.open();
try {
  const figures = await measureOne(engine);
  const crowd = many > 0 ? await measureMany(engine) : undefined;
  const text = report(figures, crowd, load);
  process.stdout.write(text);
  mkdirSync(path.join(import.meta.dirname, "results"), { recursive: true });
  writeFileSync(path.join(import.meta.dirname, "results/node.md"), text);
} finally {
  await engine[Symbol.asyncDispose]();
}
