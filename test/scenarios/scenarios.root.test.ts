import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse } from "yaml";
import { rootDir } from "../../scripts/checkout.ts";
import { ExampleEngine } from "../examples/engine.ts";

/** Longer than all scenarios of one language take on two busy cores. */
const languageTimeoutMs = 240_000;

/** `full`: also what takes minutes. */
const isFull = process.env["AGENT_SANDBOX_SCENARIOS"] === "full";

const python = ["python", "sdks/python/tests/engine/run_scenarios.py"];

interface Language {
  readonly name: string;
  readonly argv: readonly string[];
  readonly cwd: string;
}

/** How each language carries out the scenarios, as the README says. */
const languages: readonly Language[] = [
  { name: "typescript", argv: ["node", "test/scenarios/run.ts"], cwd: rootDir },
  { name: "python sync", argv: [...python, "--twin", "sync"], cwd: rootDir },
  { name: "python async", argv: [...python, "--twin", "async"], cwd: rootDir },
  { name: "go", argv: ["go", "run", "./internal/scenarios"], cwd: path.join(rootDir, "sdks/go") },
];

function scenarioNames(): string[] {
  const files = readdirSync(import.meta.dirname).filter((file) => file.endsWith(".yaml"));
  return files
    .flatMap(
      (file) =>
        parse(readFileSync(path.join(import.meta.dirname, file), "utf8")) as {
          name: string;
          tags: readonly string[];
        }[],
    )
    .filter(({ tags }) => isFull || !tags.includes("full"))
    .map(({ name }) => name);
}

/** What shows that a sandbox is reached through the API server: commands, streams, files, ports, waking and refusals. */
const routerlessNames = [
  "run-shell-text",
  "run-stdin",
  "run-stream",
  "run-cancel-at-once-leaves-nothing",
  "spawn-talks-both-ways",
  "two-clients-follow-one-process",
  "file-large-round-trip",
  "file-tree-round-trip",
  "port-is-served",
  "suspend-keeps-files-and-traffic-wakes",
  "suspend-and-hold-refuses-traffic",
];
/** Nothing listens there. */
const noRouter = { AGENT_SANDBOX_ROUTER_URL: "https://127.0.0.1:1" };

const names = scenarioNames();
let engine: ExampleEngine;

beforeAll(async () => {
  engine = await ExampleEngine.start();
});

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  process.stdout.write(`${names.length} scenarios x ${languages.length} languages\n`);
});

test("golden scenarios: there are at least forty, each under a name of its own", () => {
  expect(new Set(names).size).toBe(names.length);
  expect(names.length).toBeGreaterThanOrEqual(40);
});

async function passAll(language: Language, chosen: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<void> {
  const startMs = performance.now();
  const { name, argv, cwd } = language;
  const options = { cwd, env, timeoutMs: languageTimeoutMs };
  const { exitCode, stdout, stderr } = await engine.run([...argv, ...chosen], options);
  const failures = stdout.split("\n").filter((line) => line.includes("FAILED"));
  expect(failures).toEqual([]);
  expect([exitCode, stderr.slice(-2000)]).toEqual([0, expect.anything()]);
  expect(stdout).toContain(`${chosen.length} passed, 0 failed`);
  const seconds = ((performance.now() - startMs) / 1000).toFixed(0);
  process.stdout.write(`${name}: ${chosen.length} scenarios in ${seconds} s\n`);
}

// Most of a scenario is waiting, so the languages share the engine; each has its own sandboxes.
test.concurrent.each(languages)(
  "golden scenarios: all pass in $name",
  (language) => passAll(language, names),
  languageTimeoutMs + 10_000,
);

test.concurrent.each(languages)(
  "golden scenarios: what needs no router passes without one in $name",
  (language) => passAll(language, routerlessNames, noRouter),
  languageTimeoutMs + 10_000,
);
