/**
 * Many hibernated sandboxes on one machine: the memory that they still use, and whether each of them wakes. Needs root: it starts an engine of its own.
 *
 *   node bench/hibernated.ts [--count=200]
 */
import { readFileSync } from "node:fs";
import { freemem } from "node:os";
import { type EngineRole, roleProcess } from "../test/node/engine-processes.ts";
import { takenSandboxes } from "../test/node/holdings.ts";
import { RealEngine } from "../test/node/real-engine.ts";
import { Box } from "../test/sleep/box.ts";
import { memoryOf, rememberingPod } from "../test/sleep/memory.ts";
import { circumstances } from "./load/engine-calls.ts";
import { record } from "./load/record.ts";
import { quantile } from "./load/samples.ts";

const count = Number(process.argv.find((word) => word.startsWith("--count="))?.slice(8) ?? 200);

/** Sandboxes that are made and put to sleep at once. */
const batch = 4;

const roles: readonly EngineRole[] = ["supervisor", "control", "node", "router", "sandbox-host"];

/** Mebibytes that the engine's processes take, each with its part of what they share. */
function engineMiB(engine: RealEngine): number {
  const kib = roles.map((role) => {
    const text = readFileSync(`/proc/${roleProcess(engine, role)}/smaps_rollup`, "utf8");
    return Number(/^Pss:\s+(\d+)/m.exec(text)?.[1] ?? 0);
  });
  return kib.reduce((sum, each) => sum + each, 0) / 1024;
}

/** Mebibytes of the machine that are neither free nor cache. */
function usedMiB(): number {
  const text = readFileSync("/proc/meminfo", "utf8");
  const kib = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
  return (
    (kib("MemTotal") - kib("MemFree") - kib("Buffers") - kib("Cached") - kib("SReclaimable") + kib("Shmem")) / 1024
  );
}

async function hibernate(engine: RealEngine, name: string): Promise<[Box, string]> {
  const box = new Box(engine, name, "Hibernate");
  await box.start(rememberingPod);
  const { same } = await memoryOf(box);
  await box.sleep();
  return [box, same];
}

/** Wakes one by asking for what it has in memory, and lets it sleep again. */
async function wake(box: Box, same: string): Promise<number> {
  const startMs = performance.now();
  await box.beginWake();
  const memory = await memoryOf(box);
  const ms = performance.now() - startMs;
  if (memory.same !== same) throw new Error(`${box.name} came back with ${memory.same} instead of ${same}`);
  await box.sleep();
  return ms;
}

const when = circumstances();
const engine = await RealEngine.open("--sandboxes-ahead", "0");
try {
  // One that comes and goes: what every engine has after its first sandbox is not the price of the others.
  const [first] = await hibernate(engine, "first");
  await first.remove();
  const before = { engine: engineMiB(engine), machine: usedMiB() };
  const boxes: [Box, string][] = [];
  const startMs = performance.now();
  while (boxes.length < count) {
    const names = Array.from({ length: Math.min(batch, count - boxes.length) }, (_, at) => `box-${boxes.length + at}`);
    boxes.push(...(await Promise.all(names.map((name) => hibernate(engine, name)))));
    if (boxes.length % 20 === 0)
      process.stdout.write(`${boxes.length} asleep, ${Math.round(freemem() / 2 ** 20)} MiB free\n`);
  }
  const fallSeconds = (performance.now() - startMs) / 1000;
  if (takenSandboxes(engine).length > 0) throw new Error("a sandbox still runs");
  const after = { engine: engineMiB(engine), machine: usedMiB() };
  const wakes: number[] = [];
  for (const [box, same] of boxes) wakes.push(await wake(box, same));
  const perBox = (key: keyof typeof before): string => ((after[key] - before[key]) / count).toFixed(2);
  const text = `# Hibernated

${count} sandboxes, each a Python server with threads, timers and a deleted open file, made, asked and hibernated ${batch} at a time (${fallSeconds.toFixed(0)} s for all), then each woken by a question about what it has in memory, one after another; ${when}.

| | figure |
|---|---|
| runtime processes while all sleep | 0 |
| engine's processes, proportional, for each sleeper | ${perBox("engine")} MiB |
| memory of the machine that is neither free nor cache, for each sleeper | ${perBox("machine")} MiB |
| came back with their memory | ${wakes.length} of ${count} |
| from the request to the answer, p50, p99, longest | ${[0.5, 0.99, 1].map((q) => quantile(wakes, q).toFixed(0)).join(", ")} ms |

The machine's own figure has everything in it that runs beside. Made by \`npm run bench -- hibernated\`.
`;
  process.stdout.write(text);
  record("hibernated", text);
} finally {
  await engine[Symbol.asyncDispose]();
}
