// Carries out test/scenarios/*.yaml with the TypeScript SDK on the engine of AGENT_SANDBOX_DATA_DIR.
//
//   node test/scenarios/run.ts [scenario ...]
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { type Engine, isSandboxError, type Sandbox } from "@agent-sandbox/sdk";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine.ts";
import { parse } from "yaml";
import { controlVerbs } from "./control-verbs.ts";
import { fileVerbs } from "./file-verbs.ts";
import { mismatch, substitute, text } from "./matching.ts";
import { processVerbs } from "./process-verbs.ts";
import { type Step, type Verb, World } from "./world.ts";

interface Scenario {
  readonly name: string;
  readonly tags: readonly string[];
  readonly sandbox?: "shared" | "own" | "none";
  readonly throughProxy?: boolean;
  readonly volumes?: unknown;
  readonly steps: readonly Step[];
}

const verbs: Readonly<Record<string, Verb>> = { ...controlVerbs, ...processVerbs, ...fileVerbs };

function loadScenarios(names: readonly string[]): Scenario[] {
  const files = readdirSync(import.meta.dirname).filter((file) => file.endsWith(".yaml"));
  const every = files
    .sort()
    .flatMap((file) => parse(readFileSync(path.join(import.meta.dirname, file), "utf8")) as Scenario[]);
  const chosen = every.filter(({ name }) => names.length === 0 || names.includes(name));
  if (names.length > 0 && chosen.length !== names.length)
    throw new Error(`found ${chosen.length} of ${names.join(", ")}`);
  return chosen;
}

/** Carries out one step; throws where it does not do what is written. */
async function takeStep(world: World, written: Step): Promise<void> {
  const step = substitute(written, world.kept);
  const name = text(step, "do");
  const codes = [(step["error"] ?? []) as string | string[]].flat();
  let result: Awaited<ReturnType<Verb>>;
  try {
    const verb = verbs[name];
    if (verb === undefined) throw new Error(`no verb ${name}`);
    result = await verb(world, step);
  } catch (error) {
    if (isSandboxError(error) && codes.includes(error.code)) {
      const { limit, message } = error;
      return holdTo(mismatch(step["failure"] ?? {}, { limit, message }, name));
    }
    const code = isSandboxError(error) ? error.code : "no code";
    throw new Error(`${name} failed with ${code}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
  if (codes.length > 0 && step["orSucceeds"] !== true) {
    throw new Error(`${name} succeeded with ${JSON.stringify(result)}, not failed with ${codes.join(", ")}`);
  }
  holdTo(mismatch(step["expect"] ?? {}, result, name));
}

function holdTo(difference: string | undefined): void {
  if (difference !== undefined) throw new Error(difference);
}

async function runScenario(scenario: Scenario, engine: Engine, shared: Sandbox): Promise<void> {
  const world = new World(engine);
  const place = scenario.sandbox ?? (scenario.tags.includes("data") ? "shared" : "none");
  try {
    if (place === "shared") world.keep({}, shared);
    if (place === "own") {
      const { throughProxy, volumes } = scenario;
      await controlVerbs["create"]?.(world, { throughProxy, volumes });
    }
    for (const step of scenario.steps) await takeStep(world, step);
  } finally {
    await world.close();
  }
}

async function main(names: readonly string[]): Promise<void> {
  if (process.env["AGENT_SANDBOX_DATA_DIR"] === undefined) {
    throw new Error("AGENT_SANDBOX_DATA_DIR must name the data directory of a running engine");
  }
  const scenarios = loadScenarios(names);
  const engine = await connectEngine();
  const keeper = new World(engine);
  let failed = 0;
  try {
    await controlVerbs["create"]?.(keeper, {});
    for (const scenario of scenarios) {
      const startMs = Date.now();
      const outcome = await runScenario(scenario, engine, keeper.box({})).then(
        () => "ok",
        (error: unknown) => `FAILED ${error instanceof Error ? error.message : String(error)}`,
      );
      if (outcome !== "ok") failed += 1;
      process.stdout.write(
        `typescript ${scenario.name}: ${outcome} (${((Date.now() - startMs) / 1000).toFixed(1)} s)\n`,
      );
    }
  } finally {
    await keeper.close();
    await engine.close();
  }
  process.stdout.write(`${scenarios.length - failed} passed, ${failed} failed\n`);
  process.exitCode = failed === 0 ? 0 : 1;
}

await main(process.argv.slice(2));
