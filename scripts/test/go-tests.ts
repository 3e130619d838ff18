import { spawnSync } from "node:child_process";
import path from "node:path";
import { goEnvironment, goModules, readSetup, rootDir } from "../checkout.ts";
import { addCounts, type Counts, countGoEvents, noTests } from "./counts.ts";

/** Runs the Go tests of every module with the race detector; prints only what failed. */
export function runGoTests(): Counts {
  return goModules()
    .filter((module) => module !== "test/cluster")
    .map(runModule)
    .reduce(addCounts, noTests);
}

function runModule(module: string): Counts {
  const child = spawnSync(readSetup().go, ["test", "-race", "-json", "-timeout", "300s", "./..."], {
    cwd: path.join(rootDir, module),
    env: goEnvironment({ CGO_ENABLED: "1" }),
    encoding: "utf8",
    maxBuffer: 512 * 1024 * 1024,
  });
  const lines = child.stdout.split("\n");
  const counts = countGoEvents(lines);
  const failed = child.status !== 0;
  if (failed) process.stdout.write(`${child.stderr}${outputOf(lines)}`);
  return failed && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
}

/** The text of failed tests and packages only: a passing test's log is noise. */
function outputOf(lines: readonly string[]): string {
  const events = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line) as GoEvent);
  const key = (event: GoEvent): string => `${event.Package ?? event.ImportPath}\0${event.Test ?? ""}`;
  const failed = new Set(events.filter((event) => event.Action === "fail" || event.Action === "build-fail").map(key));
  return events
    .filter((event) => event.Output !== undefined && failed.has(key(event)))
    .map((event) => event.Output)
    .join("");
}

interface GoEvent {
  readonly Action: string;
  readonly Package?: string;
  readonly ImportPath?: string;
  readonly Test?: string;
  readonly Output?: string;
}
