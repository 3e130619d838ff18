import { Coverage, requiredPairs } from "./coverage.ts";
import { Ground } from "./ground.ts";
import { mutations } from "./mutations.ts";
import { SimulationFailure, simulate } from "./simulation.ts";

/** `--seeds N` runs seeds 1 to N (or from `--from F`), `--seed S` replays one. */
function parseArguments(args: readonly string[]): { from: number; to: number } {
  const value = (name: string): number | undefined => {
    const index = args.indexOf(name);
    return index < 0 ? undefined : Number(args[index + 1]);
  };
  const seed = value("--seed");
  if (seed !== undefined) return { from: seed, to: seed };
  const from = value("--from") ?? 1;
  return { from, to: from + (value("--seeds") ?? 2_000) - 1 };
}

/** `--mutation NAME` plants a bug, to see which seeds find it. */
const planted = process.argv[process.argv.indexOf("--mutation") + 1];
const mutation = process.argv.includes("--mutation") ? mutations.find(({ name }) => name === planted) : undefined;
const { from, to } = parseArguments(process.argv.slice(2));
const coverage = new Coverage();
await using ground = await Ground.open();
const startedMs = performance.now();
const failures: number[] = [];
for (let seed = from; seed <= to; seed++) {
  if (process.argv.includes("--progress")) process.stderr.write(`${seed} `);
  try {
    await simulate({ seed, ground, coverage, ...(mutation === undefined ? {} : { mutation }) });
  } catch (error) {
    failures.push(seed);
    if (process.argv.includes("--writes") && error instanceof SimulationFailure) {
      for (const { method, path, status, body } of error.writes)
        process.stderr.write(`${status} ${method} ${path} ${body}\n`);
    }
    process.stderr.write(`[${seed}] ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    if (failures.length >= (mutation === undefined ? 10 : 1)) break;
  }
}
const seconds = (performance.now() - startedMs) / 1000;
const thin = requiredPairs().filter(([fault, action]) => coverage.count(fault, action) < 50);
const { user, system } = process.cpuUsage();
const cpuSeconds = (user + system) / 1e6;
process.stdout.write(
  `${to - from + 1} seeds in ${seconds.toFixed(1)} s (${cpuSeconds.toFixed(1)} s of CPU), ${failures.length} failed\n`,
);
const counts = requiredPairs().map(([fault, action]) => coverage.count(fault, action));
process.stdout.write(
  `rarest pair seen ${Math.min(...counts)} times, ${counts.reduce((a, b) => a + b, 0)} meetings in all\n`,
);
process.stdout.write(`pairs seen fewer than 50 times: ${thin.length} of ${requiredPairs().length}\n`);
if (process.argv.includes("--coverage"))
  for (const [fault, action] of thin)
    process.stdout.write(`  ${fault} × ${action}: ${coverage.count(fault, action)}\n`);
// Fewer seeds cannot meet everything often enough.
const isLong = to - from + 1 >= 2_000 && mutation === undefined;
process.exitCode = failures.length > 0 || (isLong && thin.length > 0) ? 1 : 0;
