#!/usr/bin/env node
// The command as npm installs it: finds the package that carries the programs of this platform, and becomes its command as far as a process
// can. Plain JavaScript for Node 20; the programs bring their own Node.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

const supported = ["linux-x64", "linux-arm64"];
const platform = `${process.platform}-${process.arch}`;
const carrier = `@agent-sandbox/cli-${platform}`;

/** Why there is nothing to start here, as a sentence for the user. */
function reason() {
  if (!supported.includes(platform))
    return `there are no programs for ${platform}; the command runs on Linux on x64 and arm64, also in a virtual machine`;
  if (process.platform === "linux" && process.report.getReport().header.glibcVersionRuntime === undefined)
    return "the programs need glibc, which this system has not; use Debian, Ubuntu or another system with it";
  return `the package ${carrier} is not installed; npm leaves it out where optional packages are omitted: install again without --omit=optional`;
}

function findCommand() {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${carrier}/package.json`);
    return path.join(path.dirname(manifest), "bin/agent-sandbox");
  } catch {
    return undefined;
  }
}

function start(command) {
  let child;
  // Ctrl-C and Ctrl-\ of a terminal reach the command without us; sent again, they would count as pressed twice.
  const fromTerminal = process.stdin.isTTY ? ["SIGINT", "SIGQUIT"] : [];
  // Before the command begins: it may be signalled as soon as it has said something. Handlers run only after this function.
  for (const signal of ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"])
    process.on(signal, () => fromTerminal.includes(signal) || child.kill(signal));
  child = spawn(command, process.argv.slice(2), { stdio: "inherit" });
  child.on("error", (error) => fail(`${command} cannot be started: ${error.message}`));
  child.on("exit", (code, signal) => {
    process.exitCode = signal === null ? code : 128 + os.constants.signals[signal];
  });
}

function fail(text) {
  process.stderr.write(`agent-sandbox: ${text}\n`);
  process.exitCode = 1;
}

const command = findCommand();
if (command === undefined) fail(reason());
else start(command);
