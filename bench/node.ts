/**
 * Start, command and stop of one sandbox through the whole engine, as ratios to bare `runsc` in the same run, and many
 * sandboxes at once:
 *
 *   node bench/node.ts [--rounds=20] [--many=100]
 */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { pods } from "@agent-sandbox/api";
import { processTable } from "../test/node/footprint.ts";
import { isReady, RealEngine } from "../test/node/real-engine.ts";
import { record } from "./load/record.ts";
import { BareRuntime } from "./node/bare-runtime.ts";
import { daemonOf, execThroughDaemon, freed, kubeletOf, sandboxWaits, startAndWait, stopAndWait } from "./node/life.ts";
import { Samples } from "./node/samples.ts";

function flag(name: string, fallback: number): number {
  const text = process.argv.find((word) => word.startsWith(`--${name}=`))?.split("=")[1];
  return text === undefined ? fallback : Number(text);
}

const rounds = flag("rounds", 20);
const many = flag("many", 100);

/** A crowd that is not there by then will not come. */
const crowdLimitMs = 300_000;

/** What is measured, each beside what bare runsc needs for the like. */
const measures = {
  start: "run",
  "start, no sandbox made ahead": "run",
  "exec by the API": "exec",
  "exec by the node's endpoint": "exec",
  "exec by sandboxd": "exec",
  "stop, until the API has forgotten it": "stop",
  "stop, until all is given back": "stop",
} as const;

type Bare = Record<"run" | "runDaemon" | "exec" | "stop", Samples>;
type Ours = Record<keyof typeof measures, Samples>;

interface Figures {
  readonly ours: Ours;
  readonly bare: Bare;
}

async function measureOne(engine: RealEngine): Promise<Figures> {
  const bare = new BareRuntime(engine);
  const figures: Figures = {
    ours: Object.fromEntries(Object.keys(measures).map((name) => [name, new Samples()])) as Ours,
    bare: newBare(),
  };
  const byKubelet = await kubeletOf(engine);
  try {
    // The first of each pays for what is made once: the image's tree, compiled code, open connections.
    for (let round = -2; round < rounds; round++) {
      const into = round < 0 ? warmUp() : figures;
      const id = `one-${round + 2}`;
      // What the engine makes ahead for the next start is made before anything is measured, ours or bare.
      await sandboxWaits(engine);
      await into.bare.run.time(() => bare.run(id));
      await into.bare.exec.time(() => bare.exec(id));
      await into.bare.stop.time(() => bare.stop(id));
      await into.bare.runDaemon.time(() => bare.runDaemon(`${id}-daemon`));
      await bare.stop(`${id}-daemon`);
      await liveOnce(engine, id, into.ours, byKubelet);
    }
  } finally {
    await bare.close();
  }
  return figures;
}

function warmUp(): Figures {
  const ours = Object.fromEntries(Object.keys(measures).map((name) => [name, new Samples()])) as Ours;
  return { ours, bare: newBare() };
}

function newBare(): Bare {
  return { run: new Samples(), runDaemon: new Samples(), exec: new Samples(), stop: new Samples() };
}

async function liveOnce(
  engine: RealEngine,
  id: string,
  ours: Ours,
  byKubelet: (pod: string) => Promise<void>,
): Promise<void> {
  const pod = await ours.start.time(() => startAndWait(engine, id));
  // The next one comes before the engine has had a moment to make a sandbox for it.
  const hurried = await ours["start, no sandbox made ahead"].time(() => startAndWait(engine, `${id}-hurried`));
  await stopAndWait(engine, `${id}-hurried`);
  await freed(engine, hurried);
  await sandboxWaits(engine);
  await ours["exec by the API"].time(() => engine.run(id, ["/usr/bin/true"]));
  await ours["exec by the node's endpoint"].time(() => byKubelet(id));
  const daemon = await daemonOf(engine, pod);
  await execThroughDaemon(daemon);
  await ours["exec by sandboxd"].time(() => execThroughDaemon(daemon));
  await ours["stop, until all is given back"].time(async () => {
    await ours["stop, until the API has forgotten it"].time(() => stopAndWait(engine, id));
    await freed(engine, pod);
  });
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

function row(name: string, mine: Samples, its: Samples): string {
  const cells = [0.5, 0.99].flatMap((share) => {
    const [a, b] = [mine.at(share), its.at(share)];
    return [a.toFixed(0), b.toFixed(0), (a / b).toFixed(2)];
  });
  return `| ${name} | ${cells.join(" | ")} |`;
}

function report({ ours, bare }: Figures, crowd: Crowd | undefined, load: string): string {
  const rows = [
    ...Object.entries(measures).map(([name, peer]) => row(name, ours[name as keyof typeof measures], bare[peer])),
    row("bare runsc with sandboxd, until its program speaks", bare.runDaemon, bare.run),
  ];
  const crowdText =
    crowd === undefined
      ? ""
      : `\n${many} sandboxes at once: all Ready after ${crowd.seconds.toFixed(1)} s, ${crowd.mebibytesEach.toFixed(1)} MiB each (sentry and gofer, proportional set size).\n`;
  return `# Node

One sandbox through the whole engine beside bare \`runsc\` (\`run --detach\`, \`exec\`, \`delete --force\`) in the same run: a start is from the request to the API until a watcher sees the Pod Ready, that is until the daemon inside has said that it serves and its address has led to it; a stop is from the request to delete. ${rounds} rounds, milliseconds, ${new Date().toISOString().slice(0, 10)}. Load average of the machine before the run: ${load}.

| | p50 | bare | ratio | p99 | bare | ratio |
|---|---|---|---|---|---|---|
${rows.join("\n")}

A node keeps one sandbox booted for the next Pod (ADR 19); every round begins when it is there, and exec and stop are measured when the next one is. The second row is the start of a Pod that comes right after, before another was made. The last row is the floor of such a start: \`runsc run\` answers before the sandbox's first process runs, while a Pod is ready when a daemon inside runs and has opened its port.
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
  record("node", text);
} finally {
  await engine[Symbol.asyncDispose]();
}
