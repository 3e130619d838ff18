import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Command, RunOptions, RunResult, SpawnOptions } from "@agent-sandbox/sdk";
import { type Fields, text } from "./matching.ts";
import type { Step, Verb, World } from "./world.ts";

// Between two cuts the client has time to come back and read something.
const cutPauseMs = 600;

function command(step: Step): Command {
  return step["command"] as Command;
}

function spawnOptions(step: Step): SpawnOptions {
  const { env, clearEnv, cwd, user, tag, log } = step as SpawnOptions;
  const seconds = step["commandTimeoutSeconds"];
  return {
    ...(env !== undefined && { env }),
    ...(clearEnv !== undefined && { clearEnv }),
    ...(cwd !== undefined && { cwd }),
    ...(user !== undefined && { user }),
    ...(tag !== undefined && { tag }),
    ...(log !== undefined && { log }),
    ...(typeof seconds === "number" && { commandTimeoutMs: seconds * 1000 }),
  };
}

async function run(world: World, step: Step): Promise<Fields> {
  const { stdin, check } = step as RunOptions;
  const options: RunOptions = {
    ...spawnOptions(step),
    ...(stdin !== undefined && { stdin }),
    ...(check !== undefined && { check }),
  };
  if (step["cancelAfterSeconds"] !== undefined) return runCancelled(world, step, options);
  const running = world.box(step).run(command(step), options);
  const cutting = cutWhile(world, Number(step["cuts"] ?? 0));
  const [result] = await Promise.all([running, cutting]);
  return describe(result);
}

async function cutWhile(world: World, cuts: number): Promise<void> {
  for (let count = 0; count < cuts; count += 1) {
    await delay(cutPauseMs);
    world.proxy?.cut();
  }
}

async function runCancelled(world: World, step: Step, options: RunOptions): Promise<Fields> {
  const reason = new Error("cancelled by the scenario");
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(reason), Number(step["cancelAfterSeconds"]) * 1000);
  try {
    await world.box(step).run(command(step), { ...options, signal: controller.signal });
    return { cancelled: false };
  } catch (error) {
    return { cancelled: error === reason };
  } finally {
    clearTimeout(timer);
  }
}

function describe(result: RunResult): Fields {
  const { exitCode, signal, timedOut, reason, stdout, stderr, combined, stdoutBytes, droppedBytes } = result;
  const lines = stdout.replace(/\n$/, "").split("\n");
  return {
    exitCode,
    signal,
    timedOut,
    reason,
    stdout,
    stderr,
    combined,
    droppedBytes,
    stdoutSize: stdoutBytes.length,
    stdoutSha256: createHash("sha256").update(stdoutBytes).digest("hex"),
    stdoutLines: lines.length,
    lastLine: lines.at(-1),
  };
}

async function runMany(world: World, step: Step): Promise<Fields> {
  const commands = Array.from({ length: Number(step["count"]) }, (_, index) =>
    text(step, "command").replace("${index}", String(index)),
  );
  const results = await Promise.all(commands.map((one) => world.box(step).run(one)));
  return {
    distinctOutputs: new Set(results.map(({ stdout }) => stdout)).size,
    failures: results.filter(({ exitCode }) => exitCode !== 0).length,
  };
}

async function readUntil(world: World, step: Step): Promise<Fields> {
  const { stdout } = world.process(step);
  let seen = "";
  while (!seen.includes(text(step, "text"))) {
    const { done, value } = await stdout.next();
    if (done === true) throw new Error(`output ended after ${JSON.stringify(seen)}`);
    seen += Buffer.from(value).toString();
  }
  return { text: seen };
}

async function wait(world: World, step: Step): Promise<Fields> {
  const { process, stdout } = world.process(step);
  let rest = "";
  for (;;) {
    const { done, value } = await stdout.next();
    if (done === true) break;
    rest += Buffer.from(value).toString();
  }
  const { exitCode, signal } = await process.exited;
  return { exitCode, signal, rest };
}

async function processes(world: World, step: Step): Promise<Fields> {
  const found = (await world.box(step).processes()).filter(({ tag }) => tag === step["tag"]);
  return { count: found.length, running: found.filter(({ exit }) => exit === undefined).length };
}

async function signal(world: World, step: Step): Promise<Fields> {
  const scope = (step["scope"] ?? "tree") as "tree" | "process";
  await world.process(step).process.signal(text(step, "signal"), { scope });
  return {};
}

function size(step: Step): { cols: number; rows: number } {
  return { cols: Number(step["cols"]), rows: Number(step["rows"]) };
}

/** Verbs about commands and processes. */
export const processVerbs: Readonly<Record<string, Verb>> = {
  run,
  "run-many": runMany,
  spawn: async (world, step) => world.keepProcess(step, await world.box(step).spawn(command(step), spawnOptions(step))),
  pty: async (world, step) =>
    world.keepProcess(step, await world.box(step).pty(command(step), { ...spawnOptions(step), size: size(step) })),
  attach: async (world, step) =>
    world.keepProcess(
      step,
      await world.box(step).attach(text(step, "id"), { fromOffset: Number(step["fromOffset"] ?? 0) }),
    ),
  "read-until": readUntil,
  write: async (world, step) => world.process(step).process.stdin.write(text(step, "text")).then(nothing),
  "close-input": async (world, step) => world.process(step).process.stdin.end().then(nothing),
  signal,
  resize: async (world, step) => world.process(step).process.resize(size(step)).then(nothing),
  detach: async (world, step) => nothing(world.process(step).process.detach()),
  wait,
  processes,
  cut: async (world) => nothing(world.proxy?.cut()),
};

function nothing(_nothing: void | undefined): Fields {
  return {};
}
