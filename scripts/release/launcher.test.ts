import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { launcher } from "./launcher.ts";
import { layout } from "./layout.ts";

let dir = "";
beforeEach(() => {
  dir = realpathSync(mkdtempSync(path.join(os.tmpdir(), "as-launcher-")));
  for (const folder of ["a release/bin", "a release/lib", "links"])
    mkdirSync(path.join(dir, folder), { recursive: true });
  writeFileSync(path.join(dir, "a release", layout.launcher), launcher(), { mode: 0o755 });
  const node = '#!/bin/sh\nfor word in "$@" "cache=${NODE_COMPILE_CACHE-none}"; do echo "$word"; done\n';
  writeFileSync(path.join(dir, "a release", layout.node), node, { mode: 0o755 });
});
afterEach(() => rmSync(dir, { recursive: true }));

/** The lines that Node would be started with, without its own flag. */
function start(program: string, env: NodeJS.ProcessEnv, cwd = "/"): string[] {
  const { stdout, stderr } = spawnSync(program, ["run", "two words"], { cwd, env, encoding: "utf8" });
  expect(stderr).toBe("");
  return stdout.trimEnd().split("\n").slice(1);
}

const started = (cache: string): string[] => [
  path.join(dir, "a release", layout.app, "main.js"),
  "run",
  "two words",
  `cache=${cache}`,
];

test("launcher: starts no program but Node, and needs no home", () => {
  const program = path.join(dir, "a release", layout.launcher);
  expect(start(program, { PATH: "/nonexistent" })).toEqual(started("none"));
});

test("launcher: finds the release by a relative path, on PATH and through links", () => {
  const bin = path.join(dir, "a release/bin");
  const env = { PATH: `${process.env["PATH"]}:${bin}`, HOME: "/home/one" };
  const expected = started("/home/one/.cache/agent-sandbox/compile");
  expect(start("./agent-sandbox", env, bin)).toEqual(expected);
  expect(start("bin/agent-sandbox", env, path.dirname(bin))).toEqual(expected);
  expect(start("agent-sandbox", env)).toEqual(expected);
  symlinkSync("../a release/bin/agent-sandbox", path.join(dir, "links/second"));
  symlinkSync("second", path.join(dir, "links/first"));
  expect(start(path.join(dir, "links/first"), env)).toEqual(expected);
  expect(start("links/first", env, dir)).toEqual(expected);
});

test("launcher: the compile cache is where the checkout's launcher has it", () => {
  const program = path.join(dir, "a release", layout.launcher);
  const env = { HOME: "/home/one", XDG_CACHE_HOME: "/xdg", AGENT_SANDBOX_CACHE: "/own", NODE_COMPILE_CACHE: "/set" };
  expect(start(program, env)).toEqual(started("/set"));
  const { NODE_COMPILE_CACHE: _set, ...third } = env;
  expect(start(program, third)).toEqual(started("/own/compile"));
  const { AGENT_SANDBOX_CACHE: _own, ...second } = third;
  expect(start(program, second)).toEqual(started("/xdg/agent-sandbox/compile"));
});

test("launcher: a package's launcher is for one place and looks for nothing", () => {
  const program = path.join(dir, "links/agent-sandbox");
  writeFileSync(program, launcher("/usr/lib/agent-sandbox").replace("exec ", "echo "), { mode: 0o755 });
  const { stdout } = spawnSync(program, ["ls"], { env: { PATH: "/nonexistent" }, encoding: "utf8" });
  expect(stdout).toBe(
    "/usr/lib/agent-sandbox/lib/node --disable-warning=ExperimentalWarning /usr/lib/agent-sandbox/lib/app/main.js ls\n",
  );
});
