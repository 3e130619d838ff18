/**
 * Fifty requests at once to a sleeping sandbox: how long each waits longer than at an awake one:
 *
 *   node bench/wake.ts [--rounds=6] [--callers=50]
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { type Pod, pods, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { RealEngine } from "../test/node/real-engine.ts";
import { readyReason } from "../test/router/engine-router.ts";
import { type Calls, circumstances, makeSandbox, openCalls, throughRouter } from "./load/engine-calls.ts";
import { cells, quantile } from "./load/samples.ts";

function flag(name: string, fallback: number): number {
  return Number(process.argv.find((word) => word.startsWith(`--${name}=`))?.split("=")[1] ?? fallback);
}

const rounds = flag("rounds", 6);
const callers = flag("callers", 50);
/** A cheap one, so that what is added is the waking. */
const request = { method: "GET", path: "/exists/nothing", times: callers, atOnce: callers };

/** Resolves when a sandbox sleeps, with its Pod gone. */
async function asleep(engine: RealEngine, name: string): Promise<void> {
  await engine.objectWhere(
    sandboxes,
    { namespace: "default", name },
    (found: Sandbox) => readyReason(found) === "SandboxSuspended",
  );
  const signal = AbortSignal.timeout(60_000);
  while ((await podsOf(engine, name)).length > 0) {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function podsOf(engine: RealEngine, name: string): Promise<readonly Pod[]> {
  const { items } = await engine.client.list(pods, { namespace: "default" });
  return items.filter(({ metadata }) => metadata.ownerReferences?.some((owner) => owner.name === name));
}

interface Figures {
  readonly awake: number[];
  readonly added: number[];
}

/** One round: all callers at a sleeping sandbox, then the same at an awake one. */
async function round(calls: Calls, figures: Figures): Promise<void> {
  const woken = await calls.run(request);
  const awake = await calls.run(request);
  for (const { statuses } of [woken, awake])
    if (statuses.join() !== "200") throw new Error(`statuses ${statuses.join()}`);
  figures.awake.push(...awake.ms);
  const usual = quantile(awake.ms, 0.5);
  figures.added.push(...woken.ms.map((ms) => ms - usual));
}

async function measure(engine: RealEngine): Promise<Figures> {
  await makeSandbox(engine, "nap", { autoSuspension: { inactivityTimeoutSeconds: 2 } });
  await using calls = openCalls(engine, throughRouter(engine, "nap", 8888));
  await calls.run(request);
  const figures: Figures = { awake: [], added: [] };
  for (let turn = 0; turn < rounds; turn += 1) {
    await asleep(engine, "nap");
    await round(calls, figures);
  }
  return figures;
}

const when = circumstances();
const engine = await RealEngine.open("--router-listen", "127.0.0.1:7080");
try {
  const { awake, added } = await measure(engine);
  const text = `# Wake

${callers} requests at once (\`/exists\` of the legacy runtime) to a sleeping sandbox (strategy Stop) through the router, ${rounds} rounds, all answered; ${when}. Added: how much longer than the median of the same ${callers} requests at once to the sandbox when it is awake, milliseconds.

| added p50 | p99 | awake p50 | p99 | requests |
|---|---|---|---|---|
| ${cells(added, 0)} | ${cells(awake, 0)} | ${added.length} |

Made by \`npm run bench -- wake\`.
`;
  process.stdout.write(text);
  writeFileSync(path.join(import.meta.dirname, "results/wake.md"), text);
} finally {
  await engine[Symbol.asyncDispose]();
}
