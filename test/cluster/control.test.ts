import { afterAll, beforeAll, describe, test } from "vitest";
import { controlScenarios } from "./control-scenarios.ts";
import { type Engine, type EngineName, openEngine } from "./engine.ts";
import { Ground } from "./scenario-ground.ts";

/** Off by default; a cluster that has it on must find every right it asks for in our ClusterRoles. */
const ownerCheck = "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement";

const names: readonly EngineName[] = ["embedded", "cluster"];

for (const name of names) {
  describe.concurrent(`control scenarios on ${name}`, () => {
    let engine: Engine | undefined;
    let startMs = 0;
    beforeAll(async () => {
      engine = await openEngine({ name, apiserverFlags: [ownerCheck] });
      startMs = performance.now();
    }, 180_000);
    afterAll(async () => {
      const seconds = ((performance.now() - startMs) / 1_000).toFixed(1);
      process.stdout.write(`control scenarios on ${name}: ${controlScenarios.length} in ${seconds} s\n`);
      await engine?.[Symbol.asyncDispose]();
    }, 60_000);
    for (const { title, run } of controlScenarios) {
      test(`${name}: ${title}`, { timeout: 120_000 }, async () => {
        await using ground = await Ground.open((engine as Engine).admin);
        await run(ground);
      });
    }
  });
}
