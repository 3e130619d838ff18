// Set-up: makes a fresh checkout runnable, step by step, and says on standard error what it does and how long it took.
// Plain JavaScript for Node 20, because it runs before the pinned Node is there.
//
//   node scripts/setup.mjs          what `./agent-sandbox` needs
//   node scripts/setup.mjs --dev    also what the checks and tests need
//   node scripts/setup.mjs --cluster    also what the cluster tests need (several minutes once)
//
// Invariant: every step either finds its result complete or makes it under a temporary name and renames it, so a
// killed set-up is resumed by the next one.
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { clusterSteps, kubectlSteps } from "./setup/cluster-steps.mjs";
import { devSteps } from "./setup/dev-steps.mjs";
import { cacheDir, rootDir, stateDir } from "./setup/places.mjs";
import { runtimeSteps } from "./setup/runtime-steps.mjs";
import { SetupError } from "./setup/step.mjs";

const isCluster = process.argv.includes("--cluster");
const isDev = isCluster || process.argv.includes("--dev");

/** What flock answers for a lock that is taken; none of our steps ends with it. */
const lockedExitCode = 75;

/** Two set-ups at once would write the same node_modules: the second waits for the first, then finds all of it done. */
function underLock() {
  if (process.env.AGENT_SANDBOX_SETUP_LOCKED === "1") return false;
  mkdirSync(cacheDir, { recursive: true });
  const command = [path.join(cacheDir, "setup.lock"), process.execPath, ...process.argv.slice(1)];
  const attempt = (flags) =>
    spawnSync("flock", [...flags, ...command], {
      stdio: "inherit",
      env: { ...process.env, AGENT_SANDBOX_SETUP_LOCKED: "1" },
    });
  let child = attempt(["--nonblock", "--conflict-exit-code", String(lockedExitCode)]);
  if (child.error) throw new SetupError(`flock cannot be started (${child.error.message}); install util-linux`);
  if (child.status === lockedExitCode) {
    process.stderr.write("agent-sandbox: another set-up is under way; waiting for it ...\n");
    child = attempt([]);
  }
  process.exitCode = child.status ?? 1;
  return true;
}

function runSteps(steps) {
  for (const step of steps) {
    if (step.isDone()) continue;
    const started = Date.now();
    process.stderr.write(`agent-sandbox: ${step.title} ...\n`);
    step.run();
    if (!step.isDone()) throw new SetupError(`${step.title}: finished, but its result is not there`);
    process.stderr.write(`agent-sandbox: ${step.title}: ${((Date.now() - started) / 1000).toFixed(1)} s\n`);
  }
}

try {
  if (!underLock()) {
    const steps = runtimeSteps();
    runSteps([...steps, ...(isDev ? [...devSteps(), ...kubectlSteps()] : []), ...(isCluster ? clusterSteps() : [])]);
    const programs = steps.flatMap((step) => step.programs ?? []);
    mkdirSync(stateDir, { recursive: true });
    writeFileSync(path.join(stateDir, "ready"), programs.map((file) => `${file}\n`).join(""));
  }
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  process.stderr.write(`agent-sandbox: set-up failed in ${path.basename(rootDir)}: ${error.message}\n`);
  process.exitCode = 1;
}
