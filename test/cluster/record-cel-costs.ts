// Records what Kubernetes estimates the rules of test/conformance/cel-cost-rules.ts to cost into test/conformance/golden.
//
//   node test/cluster/record-cel-costs.ts
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { costRules } from "../conformance/cel-cost-rules.ts";

const here = import.meta.dirname;
const setup = path.resolve(here, "../../node_modules/.agent-sandbox/setup.json");
const { go } = JSON.parse(readFileSync(setup, "utf8")) as { go: string };
const answer = execFileSync(go, ["run", "-trimpath", "./celcosts"], {
  cwd: here,
  env: { ...process.env, CGO_ENABLED: "0", GOTOOLCHAIN: "local", GOFLAGS: "-buildvcs=false" },
  input: JSON.stringify(costRules),
  encoding: "utf8",
  maxBuffer: 2 ** 24,
});
const estimates = JSON.parse(answer) as { cost: number; error?: string }[][];
for (const { error } of estimates.flat()) if (error !== undefined) throw new Error(error);
const file = path.resolve(here, "../conformance/golden/cel-costs.json");
writeFileSync(file, `${JSON.stringify(estimates, undefined, 1)}\n`);
process.stdout.write(`${estimates.flat().length} rules recorded\n`);
