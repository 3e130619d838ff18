// Runs every suite, prints each part's duration, and ends with one line that counts the tests of all runners.
//
//   node scripts/test.ts                    unit, go, python, root
//   node scripts/test.ts --only cluster     one part (repeatable)
//   node scripts/test.ts --full             the long versions of suites that have one
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { rootDir, secondsSince, succeeds } from "./checkout.ts";
import { addCounts, type Counts, noTests, parseVitestReport } from "./test/counts.ts";
import { runGoTests } from "./test/go-tests.ts";
import { runPytest } from "./test/pytest.ts";

function runVitest(project: string): Counts {
  const dir = mkdtempSync(path.join(os.tmpdir(), "agent-sandbox-test-"));
  const report = path.join(dir, "report.json");
  const args = ["run", "--project", project, "--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  const passed = succeeds("vitest", args, { cwd: rootDir });
  try {
    return parseVitestReport(readFileSync(report, "utf8"), passed);
  } catch {
    return { ...noTests, failed: 1 }; // No report: the runner itself fell over, which must not count as a pass.
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const parts: Record<string, () => Counts | Promise<Counts>> = {
  unit: () => runVitest("unit"),
  go: runGoTests,
  python: runPytest,
  root: () => runVitest("root"),
  cluster: () => runVitest("cluster"),
};
const normalParts = ["unit", "go", "python", "root"];

const { values } = parseArgs({ options: { only: { type: "string", multiple: true }, full: { type: "boolean" } } });
if (values.full === true) process.env["AGENT_SANDBOX_TEST_FULL"] = "1";
process.stdout.write(`tests on Node ${process.version}\n`);
let total = noTests;
for (const name of values.only ?? normalParts) {
  const part = parts[name];
  if (part === undefined) throw new Error(`no test part '${name}'; there are ${Object.keys(parts).join(", ")}`);
  const startMs = Date.now();
  const counts = await part();
  total = addCounts(total, counts);
  process.stdout.write(`part ${name}: ${counts.passed} passed, ${counts.failed} failed in ${secondsSince(startMs)}\n`);
}
process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`);
process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1;
