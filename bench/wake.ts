/**
 * Requests to a sleeping sandbox, fifty at once and one alone, for each way to sleep: how long each waits longer than at an awake one:
 *
 *   node bench/wake.ts [--rounds=6]
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { findCondition, type Sandbox, type SuspendedReason, sandboxes } from "@agent-sandbox/api";
import { RealEngine } from "../test/node/real-engine.ts";
import { type Calls, circumstances, makeSandbox, openCalls, throughRouter } from "./load/engine-calls.ts";
import { cells, quantile } from "./load/samples.ts";

function flag(name: string, fallback: number): number {
  return Number(process.argv.find((word) => word.startsWith(`--${name}=`))?.split("=")[1] ?? fallback);
}

const rounds = flag("rounds", 6);

/** A way to sleep, and what its Sandbox says once it does. */
interface Way {
  readonly strategy: "Stop" | "Freeze" | "Hibernate";
  readonly reason: SuspendedReason;
}

const ways: readonly Way[] = [
  { strategy: "Freeze", reason: "PodFrozen" },
  { strategy: "Hibernate", reason: "PodHibernated" },
  { strategy: "Stop", reason: "PodTerminated" },
];

/** A cheap request, so that what is added is the waking. */
const requestsOf = (callers: number) =>
  ({ method: "GET", path: "/exists/nothing", times: callers, atOnce: callers }) as const;

/** Resolves when a sandbox sleeps. */
async function asleep(engine: RealEngine, name: string, { reason }: Way): Promise<void> {
  const isAsleep = ({ status }: Sandbox): boolean => {
    const suspended = findCondition(status?.conditions, "Suspended");
    return suspended?.status === "True" && suspended.reason === reason;
  };
  await engine.objectWhere(sandboxes, { namespace: "default", name }, isAsleep);
}

interface Figures {
  readonly awake: number[];
  readonly added: number[];
}

/** One round: all callers at a sleeping sandbox, then the same at an awake one. */
async function round(calls: Calls, callers: number, figures: Figures): Promise<void> {
  const request = requestsOf(callers);
  const woken = await calls.run(request);
  const awake = await calls.run(request);
  for (const { statuses } of [woken, awake])
    if (statuses.join() !== "200") throw new Error(`statuses ${statuses.join()}`);
  figures.awake.push(...awake.ms);
  const usual = quantile(awake.ms, 0.5);
  figures.added.push(...woken.ms.map((ms) => ms - usual));
}

async function measure(engine: RealEngine, way: Way, callers: number): Promise<string> {
  const name = `${way.strategy.toLowerCase()}-${callers}`;
  const spec = { autoSuspension: { inactivityTimeoutSeconds: 2 }, suspensionStrategy: { type: way.strategy } };
  await makeSandbox(engine, name, spec);
  await using calls = openCalls(engine, throughRouter(engine, name, 8888));
  await calls.run(requestsOf(callers));
  const figures: Figures = { awake: [], added: [] };
  for (let turn = 0; turn < rounds * (callers === 1 ? 3 : 1); turn += 1) {
    await asleep(engine, name, way);
    await round(calls, callers, figures);
  }
  await engine.client.delete(sandboxes, { namespace: "default", name });
  const { added, awake } = figures;
  const row = `| ${way.strategy} | ${callers} | ${cells(added, 0)} | ${cells(awake, 0)} | ${added.length} |`;
  process.stdout.write(`${row}\n`);
  return row;
}

const when = circumstances();
const engine = await RealEngine.open("--router-listen", "127.0.0.1:7080");
try {
  const rows: string[] = [];
  for (const way of ways) for (const callers of [1, 50]) rows.push(await measure(engine, way, callers));
  const text = `# Wake

Requests (\`/exists\` of the legacy runtime) to a sleeping sandbox through the router, one alone and 50 at once, all answered; ${when}. Added: how much longer than the median of the same requests to the sandbox when it is awake, milliseconds.

| strategy | at once | added p50 | p99 | awake p50 | p99 | requests |
|---|---|---|---|---|---|---|
${rows.join("\n")}

Made by \`npm run bench -- wake\`.
`;
  writeFileSync(path.join(import.meta.dirname, "results/wake.md"), text);
} finally {
  await engine[Symbol.asyncDispose]();
}
