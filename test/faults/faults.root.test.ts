import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type Engine, Sandbox } from "@agent-sandbox/sdk";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { ExampleEngine } from "../examples/engine.ts";
import { until } from "../node/real-engine.ts";
import { type Reading, renderTable } from "./fault-table.ts";
import { isOfSandbox, killTarget, recovered, type Target, targets, type Victim } from "./fault-targets.ts";
import { LanguageDriver } from "./language-driver.ts";
import { memoryHog, type Phase, phases, silentPort } from "./protocol.ts";

/** A cross-section on every run; `AGENT_SANDBOX_TEST_FULL=1` kills everything in every phase. */
const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";

/** One round for each target, each in another phase; those that wait for their own limit are left out. */
const crossSection: readonly (readonly [Target, Phase])[] = [
  ["sentry", "idle"],
  ["container", "download"],
  ["sandboxd", "tunnel"],
  ["router", "upload"],
  ["control", "connecting"],
  ["node", "streaming"],
];
const rounds = isFull ? targets.flatMap((target) => phases.map((phase) => [target, phase] as const)) : crossSection;

/** Phases whose command ends by itself, with 7, some seconds later. */
const outliving: ReadonlySet<Phase> = new Set(["streaming", "idle", "tunnel"]);

/** The longest limit of a call, what the SDK adds to tell the sandbox, and a busy machine's share. */
const endsWithinSeconds = 35;
const roundTimeoutMs = 150_000;

const work = mkdtempSync(path.join(os.tmpdir(), "agent-sandbox-faults-"));
const readings: Reading[] = [];
let example: ExampleEngine;
let engine: Engine;
let victim: Victim;
let drivers: LanguageDriver[];
/** Those of rounds that end no sandbox. */
let lasting: readonly string[];

beforeAll(async () => {
  const program = path.join(work, "faults");
  const cwd = path.join(rootDir, "sdks/go");
  // Sandboxes made ahead have another name than the container that joins them.
  example = await ExampleEngine.start("--sandboxes-ahead", "0");
  const { env, dataDir } = example;
  await promisify(execFile)("go", ["build", "-o", program, "./internal/faults"], { cwd, env });
  engine = await connectEngine({ dataDir });
  victim = { dataDir, engine };
  drivers = [
    { language: "TypeScript", argv: ["node", "test/faults/driver.ts"] },
    { language: "Python", argv: ["python", "sdks/python/tests/engine/run_faults.py"] },
    { language: "Go", argv: [program] },
  ].map((command) => new LanguageDriver({ ...command, cwd: rootDir, env }));
  lasting = await makeSandboxes("lasting");
}, 200_000);

afterAll(async () => {
  for (const driver of drivers ?? []) driver[Symbol.dispose]();
  await engine?.close();
  await example?.[Symbol.asyncDispose]();
  rmSync(work, { recursive: true, force: true });
  const table = renderTable(readings);
  process.stdout.write(`${table}\n`);
  const file = process.env["AGENT_SANDBOX_FAULT_TABLE"];
  if (file !== undefined) writeFileSync(file, `${table}\n`);
});

const silentServer = `import socket
s = socket.create_server(("0.0.0.0", ${silentPort}))
kept = []
while True:
    kept.append(s.accept())`;

/** A sandbox for each language, with a port that is never answered and a file that takes long to read. */
async function makeSandboxes(prefix: string): Promise<string[]> {
  return Promise.all(
    drivers.map(async ({ language }) => {
      const name = `${prefix}-${language.toLowerCase()}`;
      const box = await Sandbox.create({ engine, name });
      await box.run(`truncate -s 128M /tmp/big; setsid python3 -c '${silentServer}' >/dev/null 2>&1 &`);
      for (let look = 0; look < 100; look += 1) {
        if ((await box.ports()).some(({ port }) => port === silentPort)) break;
        await sleep(50);
      }
      await box.close();
      return name;
    }),
  );
}

/** What the Sandbox of that name says of its end. */
const killedText = "OOMKilled: container sandbox: the sandbox was killed: it reached its memory limit of 96Mi";

/** From the first line of a program that takes all memory to its caller's knowledge of the end: keep-alive alone took more than five seconds. */
const killedWithinMs = 5_000;

test("faults: a command that takes all memory ends with 137 and the reason, in every language, soon", async () => {
  const ended = drivers.map(async (driver) => {
    const name = `memory-${driver.language.toLowerCase()}`;
    const box = await Sandbox.create({ engine, name, memory: "96Mi" });
    const call = driver.call("memory", name);
    await call.reached;
    const startMs = performance.now();
    const outcome = await call.ended;
    const tookMs = performance.now() - startMs;
    process.stdout.write(`${driver.language}: ${outcome.text} after ${(tookMs / 1000).toFixed(1)} s\n`);
    expect(outcome).toEqual({ kind: "result", text: `exit 137 ${killedText}` });
    expect(tookMs).toBeLessThan(killedWithinMs);
    await box.delete();
  });
  await Promise.all(ended);
});

test.each([[[]], [["-it"]]])("faults: the command line says why and exits with 137, with flags %j", async (flags) => {
  const words = ["run", ...flags, "--memory", "96Mi", "--", ...memoryHog].map((word) => `'${word}'`).join(" ");
  // A terminal for `-it`; without the flag it changes nothing but the colours.
  const argv = ["script", "-qec", `agent-sandbox ${words}`, "/dev/null"];
  const { exitCode, stdout } = await example.run(argv, { timeoutMs: 60_000 });
  expect({ exitCode, stdout }).toEqual({
    exitCode: 137,
    stdout: expect.stringContaining(`error: the command was killed: ${killedText}`),
  });
});

test("faults: a command line that is killed leaves its command, until the command's own limit, and nothing else", async () => {
  const name = lasting[0] ?? "";
  const box = await Sandbox.get(name, { engine });
  const running = async (): Promise<string[]> => {
    const all = await box.processes({ runningOnly: true });
    return all.map(({ command }) => command.join(" ")).filter((command) => command.startsWith("sleep 3"));
  };
  const child = spawn("agent-sandbox", ["exec", "--command-timeout", "3s", name, "--", "sleep", "300"], {
    env: example.env,
    stdio: "ignore",
  });
  await until(async () => (await running()).length === 1);
  child.kill("SIGKILL");
  await once(child, "exit");
  expect(await running()).toEqual(["sleep 300"]);
  await until(async () => (await running()).length === 0);
  await box.close();
});

async function measure(target: Target, phase: Phase, sandboxes: readonly string[]): Promise<Reading[]> {
  let killedMs = 0;
  const kill = (): Promise<void> => {
    killedMs = performance.now();
    return killTarget(victim, target, sandboxes);
  };
  if (phase === "connecting") await kill();
  const calls = drivers.map((driver, index) => ({ driver, call: driver.call(phase, sandboxes[index] ?? "") }));
  const ends = calls.map(async ({ driver, call }) => {
    const outcome = await call.ended;
    return { target, phase, language: driver.language, outcome, seconds: (performance.now() - killedMs) / 1000 };
  });
  if (phase !== "connecting") {
    await Promise.all(calls.map(({ call }) => call.reached));
    await kill();
  }
  return Promise.all(ends);
}

test.each(rounds)(
  "faults: %s killed while %s: every call ends with a result or a typed error, and the next one works",
  async (target, phase) => {
    await recovered(victim, []);
    const own = isOfSandbox(target) ? await makeSandboxes(`${target}-${phase}`) : undefined;
    const sandboxes = own ?? lasting;
    const found = await measure(target, phase, sandboxes);
    readings.push(...found);
    const table = renderTable(found);
    expect(
      found.filter(({ outcome }) => outcome.kind === "untyped").map(({ outcome }) => outcome.text),
      table,
    ).toEqual([]);
    expect(Math.max(...found.map(({ seconds }) => seconds)), table).toBeLessThan(endsWithinSeconds);
    // A command outlives every process of the engine, and its caller hears of its end.
    if (own === undefined && outliving.has(phase))
      expect(
        found.map(({ outcome }) => outcome.text),
        table,
      ).toEqual(drivers.map(() => "exit 7"));
    await recovered(victim, own ?? []);
    const next = await Promise.all(
      drivers.map((driver, index) => driver.call("recovered", sandboxes[index] ?? "").ended),
    );
    // How often the command of `connecting` ran: once, or, where its call failed, perhaps not at all.
    for (const outcome of next) expect(outcome).toEqual({ kind: "result", text: expect.stringMatching(/^[01]$/) });
    if (own === undefined)
      await Promise.all(sandboxes.map(async (name) => (await Sandbox.get(name, { engine })).run("rm -f /var/tmp/ran")));
    else await Promise.all(own.map(async (name) => (await Sandbox.get(name, { engine })).delete()));
  },
  roundTimeoutMs,
);
