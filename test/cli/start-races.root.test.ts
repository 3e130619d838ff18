import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readlinkSync, rmSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, expect, test } from "vitest";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { processesNaming, processTable } from "../node/footprint.ts";
import { TestNamespace } from "../node/namespace.ts";
import { until } from "../node/real-engine.ts";

const command = path.join(rootDir, "agent-sandbox");
let place: TestNamespace;
let work: string;
let dataDir: string;

beforeEach(async () => {
  place = await TestNamespace.open();
  work = mkdtempSync("/tmp/as-races-");
  dataDir = `${work}-data`;
});

afterEach(async () => {
  place.must(command, "down", "--purge", "--data-dir", dataDir);
  expect(processesNaming(dataDir)).toEqual([]);
  rmSync(work, { recursive: true });
  await place[Symbol.asyncDispose]();
});

function start(verb: string, ...args: readonly string[]) {
  const [program, words] = place.inside(command, verb, "--data-dir", dataDir, ...args);
  const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"] });
  const [stdout, stderr] = [text(child.stdout), text(child.stderr)];
  const ended = once(child, "close").then(async ([code]) => ({
    code: code as number | null,
    stdout: await stdout,
    stderr: await stderr,
  }));
  return { child, ended };
}

test("start: of two runs at once on a machine without an engine, one starts it and both are served", async () => {
  const runs = [start("run", "--", "echo", "one"), start("run", "--", "echo", "two")];
  const ended = await Promise.all(runs.map(({ ended }) => ended));
  expect(ended.map(({ code, stdout }) => [code, stdout])).toEqual([
    [0, "one\n"],
    [0, "two\n"],
  ]);
  // Both may have begun to start one; the process that came second ends when it finds the data directory held.
  await until(() => processesNaming(dataDir).filter((line) => line.includes(" up --data-dir")).length === 1);
});

test("start: an engine that is still starting is found by down and ended", async () => {
  const { ended } = start("up", "--listen", "127.0.0.1:7443");
  const holder = path.join(layoutOf(dataDir).runDir, "holder.json");
  while (place.run(["test", "-s", holder]).status !== 0) await new Promise((resolve) => setTimeout(resolve, 10));
  const report = await start("down").ended;
  expect(report).toEqual({ code: 0, stdout: "engine is stopped\n", stderr: "" });
  await ended;
  // Its processes notice that they are alone and end, however far they have come.
  await until(() => processesInside().length === 0);
});

/** Programs in the namespace besides the one that holds it open. */
function processesInside(): string[] {
  const here = readlinkSync(`/proc/${place.pid}/ns/net`);
  return processTable()
    .filter(({ pid, command }) => pid !== place.pid && command !== "" && isIn(pid, here))
    .map(({ command }) => command);
}

function isIn(pid: number, namespace: string): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`) === namespace;
  } catch {
    return false;
  }
}
