// How steps are run: in order, each only where its result is missing, one set-up at a time.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { SetupError } from "./step.mjs";

/** What flock answers for a lock that is taken; none of our steps ends with it. */
const lockedExitCode = 75;

/** Set for the process that works under the lock. */
const lockedVariable = "AGENT_SANDBOX_SETUP_LOCKED";

/** True in the process that works under the lock: what started it has looked already whether a set-up is possible. */
export const isUnderLock = process.env[lockedVariable] === "1";

/**
 * Two set-ups at once would write the same node_modules: the second waits for the first, then finds all of it done.
 * Starts this program again under the lock and returns true; in that second process returns false.
 */
export function startedUnderLock(lockFile, say) {
  if (isUnderLock) return false;
  mkdirSync(path.dirname(lockFile), { recursive: true });
  const command = [lockFile, process.execPath, ...process.argv.slice(1)];
  const attempt = (flags) =>
    spawnSync("flock", [...flags, ...command], {
      stdio: "inherit",
      env: { ...process.env, [lockedVariable]: "1" },
    });
  let child = attempt(["--nonblock", "--conflict-exit-code", String(lockedExitCode)]);
  if (child.error) throw new SetupError(`flock cannot be started (${child.error.message}); install util-linux`);
  if (child.status === lockedExitCode) {
    say("another set-up is under way; waiting for it ...");
    child = attempt([]);
  }
  process.exitCode = child.status ?? 1;
  return true;
}

/** Runs the steps whose results are missing and says how long each took. */
export function runSteps(steps, say) {
  for (const step of steps) {
    if (step.isDone()) continue;
    const started = Date.now();
    say(`${step.title} ...`);
    step.run();
    if (!step.isDone()) throw new SetupError(`${step.title}: finished, but its result is not there`);
    say(`${step.title}: ${((Date.now() - started) / 1000).toFixed(1)} s`);
  }
}
