// Set-up: makes a fresh checkout runnable, step by step, and says on standard error what it does and how long it took.
// Plain JavaScript for Node 20, because it runs before the pinned Node is there.
//
//   node scripts/setup.mjs          what `./agent-sandbox` needs
//   node scripts/setup.mjs --dev    also what the checks and tests need
//   node scripts/setup.mjs --cluster    also what the cluster tests need (several minutes once)
//
// Invariant: every step either finds its result complete or makes it under a temporary name and renames it, so a
// killed set-up is resumed by the next one.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { clusterSteps, kubectlSteps } from "./setup/cluster-steps.mjs";
import { devSteps } from "./setup/dev-steps.mjs";
import { cacheDir, rootDir, stateDir } from "./setup/places.mjs";
import { runSteps, startedUnderLock } from "./setup/run-steps.mjs";
import { runtimeSteps } from "./setup/runtime-steps.mjs";
import { SetupError } from "./setup/step.mjs";

const isCluster = process.argv.includes("--cluster");
const isDev = isCluster || process.argv.includes("--dev");
const say = (text) => process.stderr.write(`agent-sandbox: ${text}\n`);

try {
  if (!startedUnderLock(path.join(cacheDir, "setup.lock"), say)) {
    const steps = runtimeSteps();
    const devOnly = isDev ? [...devSteps(), ...kubectlSteps()] : [];
    runSteps([...steps, ...devOnly, ...(isCluster ? clusterSteps() : [])], say);
    const programs = steps.flatMap((step) => step.programs ?? []);
    mkdirSync(stateDir, { recursive: true });
    writeFileSync(path.join(stateDir, "ready"), programs.map((file) => `${file}\n`).join(""));
  }
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  say(`set-up failed in ${path.basename(rootDir)}: ${error.message}`);
  process.exitCode = 1;
}
