import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";

// A set-up of one step, which makes a directory of two files; `gate` holds it between the two until a file appears.
const program = `
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import path from "node:path";
import { runSteps, startedUnderLock } from ${JSON.stringify(path.join(import.meta.dirname, "run-steps.mjs"))};
import { makeDirectory, run, SetupError } from ${JSON.stringify(path.join(import.meta.dirname, "step.mjs"))};

const [work, mode] = process.argv.slice(2);
const target = path.join(work, "result");
const say = (text) => process.stderr.write(text + "\\n");
const step = {
  title: "the result",
  isDone: () => existsSync(path.join(target, "second")) && mode !== "useless",
  run: () => makeDirectory(target, (partial) => {
    appendFileSync(path.join(work, "runs"), "run\\n");
    if (mode === "offline") run("false", [], { needsNetwork: "the packages" });
    writeFileSync(path.join(partial, "first"), "");
    while (mode === "gate" && !existsSync(path.join(work, "gate"))) spawnSync("sleep", ["0.02"]);
    writeFileSync(path.join(partial, "second"), "");
  }),
};
try {
  if (!startedUnderLock(path.join(work, "lock"), say)) runSteps([step], say);
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  say(error.message);
  process.exitCode = 1;
}
`;

let work: string;

beforeEach(() => {
  work = mkdtempSync(path.join(os.tmpdir(), "run-steps-"));
  writeFileSync(path.join(work, "setup.mjs"), program);
});

afterEach(() => rmSync(work, { recursive: true }));

function start(mode: string): {
  readonly child: ChildProcess;
  readonly ended: Promise<{ code: unknown; said: string }>;
} {
  const args = [path.join(work, "setup.mjs"), work, mode];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "pipe"], detached: true });
  const said = text(child.stderr as NonNullable<typeof child.stderr>);
  const ended = once(child, "exit").then(async ([code]) => ({ code, said: await said }));
  return { child, ended };
}

async function untilThere(file: string): Promise<void> {
  const signal = AbortSignal.timeout(15_000);
  while (!existsSync(path.join(work, file))) await sleep(10, undefined, { signal });
}

const runs = (): number => readFileSync(path.join(work, "runs"), "utf8").trim().split("\n").length;

test("set-up: a result that is there costs nothing and says nothing", async () => {
  expect((await start("plain").ended).said).toMatch(/^the result \.\.\.\nthe result: \d+\.\d s\n$/);
  expect(await start("plain").ended).toEqual({ code: 0, said: "" });
  expect(runs()).toBe(1);
});

test("set-up: of two at once the second waits and finds all done", async () => {
  const first = start("gate");
  await untilThere("result.partial/first");
  const second = start("gate");
  const waiting = once(second.child.stderr as NonNullable<typeof second.child.stderr>, "data");
  await waiting;
  writeFileSync(path.join(work, "gate"), "");
  expect((await first.ended).code).toBe(0);
  expect(await second.ended).toEqual({ code: 0, said: "another set-up is under way; waiting for it ...\n" });
  expect(runs()).toBe(1);
});

test("set-up: killed half way it leaves no result, and the next one makes it whole", async () => {
  const { child, ended } = start("gate");
  await untilThere("result.partial/first");
  process.kill(-(child.pid ?? 0), "SIGKILL");
  await ended;
  expect(existsSync(path.join(work, "result"))).toBe(false);
  expect((await start("plain").ended).code).toBe(0);
  expect(readdirSync(path.join(work, "result")).sort()).toEqual(["first", "second"]);
});

test("set-up: a step that needs the network says so and fails", async () => {
  const { code, said } = await start("offline").ended;
  expect(code).toBe(1);
  expect(said).toContain("this step needs the network: the packages");
});

test("set-up: a step that ends without its result is a failure", async () => {
  expect(await start("useless").ended).toMatchObject({ code: 1 });
});
