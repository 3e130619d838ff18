// Repeats tests in a random order until one fails, to find a flake and the order that shows it.
//
//   npm run test:until-fail -- packages/kube            any arguments of vitest; --rounds N (default 100)
//   npm run test:until-fail -- --seed 41 packages/kube  replays the order of one round
import { randomInt } from "node:crypto";
import { parseArgs } from "node:util";
import { succeeds } from "./checkout.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: "string", default: "100" },
    project: { type: "string", default: "unit" },
    seed: { type: "string" },
  },
});
const roundsMax = values.seed === undefined ? Number(values.rounds) : 1;
if (!Number.isInteger(roundsMax) || roundsMax < 1) throw new Error(`--rounds: '${values.rounds}' is not a count`);

for (let round = 1; round <= roundsMax; round++) {
  const seed = values.seed ?? String(randomInt(2 ** 31));
  const order = ["--sequence.shuffle.tests", "--sequence.shuffle.files", `--sequence.seed=${seed}`];
  const passed = succeeds("vitest", ["run", "--project", values.project, "--reporter=dot", ...order, ...positionals]);
  process.stdout.write(`round ${round} of ${roundsMax}, seed ${seed}: ${passed ? "passed" : "failed"}\n`);
  if (!passed) {
    process.exitCode = 1;
    break;
  }
}
