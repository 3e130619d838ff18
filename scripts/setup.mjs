// Set-up: makes a fresh checkout runnable, step by step, and says on standard error what it does and how long it took.
// Plain JavaScript for Node 20, because it runs before the pinned Node is there.
//
//   node scripts/setup.mjs          what `./agent-sandbox` needs
//   node scripts/setup.mjs --dev    also what the checks and tests need
//   node scripts/setup.mjs --release    what `npm run release` needs: the programs of both architectures
//   node scripts/setup.mjs --cluster    also what the cluster tests need (several minutes once)
//   node scripts/setup.mjs --for VERB ...   what `./agent-sandbox` needs for this command line
//
// Invariant: every step either finds its result complete or makes it under a temporary name and renames it, so a
// killed set-up is resumed by the next one.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { clusterSteps, kubectlSteps } from "./setup/cluster-steps.mjs";
import { devSteps } from "./setup/dev-steps.mjs";
import { cacheDir, rootDir, stateDir } from "./setup/places.mjs";
import { assertPlaces, assertPossible } from "./setup/preflight.mjs";
import { releaseSteps } from "./setup/release-steps.mjs";
import { isUnderLock, runSteps, startedUnderLock } from "./setup/run-steps.mjs";
import { runtimeSteps } from "./setup/runtime-steps.mjs";
import { SetupError } from "./setup/step.mjs";

const [mode = "", ...commandLine] = process.argv.slice(2);
const isCluster = mode === "--cluster";
const isRelease = mode === "--release";
const isDev = isCluster || mode === "--dev";
const say = (text) => process.stderr.write(`agent-sandbox: ${text}\n`);

try {
  if (!isUnderLock) assertPlaces(mode === "--for" ? commandLine : []);
  const steps = runtimeSteps();
  if (!isUnderLock) assertPossible(steps);
  if (!startedUnderLock(path.join(cacheDir, "setup.lock"), say)) {
    const devOnly = isDev ? [...devSteps(), ...kubectlSteps()] : [];
    const releaseOnly = isRelease ? releaseSteps(["x64", "arm64"], { isAsking: true }) : [];
    runSteps([...steps, ...devOnly, ...releaseOnly, ...(isCluster ? clusterSteps() : [])], say);
    const programs = steps.flatMap((step) => step.programs ?? []);
    mkdirSync(stateDir, { recursive: true });
    writeFileSync(path.join(stateDir, "ready"), programs.map((file) => `${file}\n`).join(""));
  }
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  say(`set-up of ${rootDir}: ${error.message}`);
  process.exitCode = error.exitCode;
}
