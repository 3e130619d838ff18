import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { readDevDir, rootDir } from "../checkout.ts";
import { type Counts, noTests, parsePytestSummary } from "./counts.ts";

/** Runs the Python SDK's tests. */
export function runPytest(): Counts {
  const cwd = path.join(rootDir, "sdks/python");
  if (!existsSync(path.join(cwd, "pyproject.toml"))) return noTests;
  const child = spawnSync(path.join(readDevDir("python"), "bin/pytest"), ["-q", "--no-header"], {
    cwd,
    encoding: "utf8",
  });
  process.stdout.write(child.stdout);
  process.stderr.write(child.stderr);
  const counts = parsePytestSummary(child.stdout.trimEnd().split("\n").at(-1) ?? "");
  return child.status !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
}
