// Runs many seeds, or one again:
//
//   npm run simulate -- --seeds 2000 [--from F] [--jobs N]     a range; the long run also demands that every kind of fault met every kind of action
//   npm run simulate -- --seed S [--writes]                    one seed, with what the controllers wrote
//   npm run simulate -- --mutation NAME                        plants a bug, to see which seed finds it
import { parseArgs } from "node:util";
import { requiredPairs, thinPairs } from "./coverage.ts";
import { runSeeds } from "./run-seeds.ts";

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "2000" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    jobs: { type: "string" },
    mutation: { type: "string" },
    progress: { type: "boolean", default: false },
    writes: { type: "boolean", default: false },
    coverage: { type: "boolean", default: false },
  },
});
const from = Number(values.seed ?? values.from);
const to = values.seed === undefined ? from + Number(values.seeds) - 1 : from;
const startedMs = performance.now();
const report = await runSeeds({
  from,
  to,
  ...(values.jobs === undefined ? {} : { jobs: Number(values.jobs) }),
  ...(values.mutation === undefined ? {} : { mutation: values.mutation, failuresMax: 1 }),
  onRange: (range) => {
    if (values.progress) process.stderr.write(`${range.from}-${range.to} `);
  },
});
for (const { text, writes } of report.failures) {
  if (values.writes) process.stderr.write(`${writes.join("\n")}\n`);
  process.stderr.write(`${text}\n`);
}
const seconds = (performance.now() - startedMs) / 1000;
const thin = thinPairs(report.coverage);
const counts = requiredPairs().map(([fault, action]) => report.coverage.count(fault, action));
const meetings = counts.reduce((sum, count) => sum + count, 0);
process.stdout.write(
  `${report.seeds} seeds in ${seconds.toFixed(1)} s (${(report.cpuMs / 1000).toFixed(1)} s of CPU, ${(report.cpuMs / report.seeds).toFixed(1)} ms each), ${report.failures.length} failed\n` +
    `rarest pair seen ${Math.min(...counts)} times, ${meetings} meetings in all\n` +
    `pairs seen too seldom: ${thin.length} of ${counts.length}\n`,
);
if (values.coverage) process.stdout.write(thin.map((line) => `  ${line}\n`).join(""));
// Fewer seeds cannot meet everything often enough.
const isLong = to - from + 1 >= 2_000 && values.mutation === undefined;
process.exitCode = report.failures.length > 0 || (isLong && thin.length > 0) ? 1 : 0;
