import { restoreOf } from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { holdings, takenSandboxes } from "../node/holdings.ts";
import { until } from "../node/real-engine.ts";
import { Box, type DeepRung, deepRungs } from "./box.ts";
import { memoryOf, rememberingPod } from "./memory.ts";
import { allDeaths, type Death, isFull, MortalEngine } from "./mortal-engine.ts";

let mortal: MortalEngine;

beforeAll(async () => {
  mortal = await MortalEngine.open();
}, 300_000);
afterAll(async () => {
  await mortal?.[Symbol.asyncDispose]();
}, 120_000);

async function startBox(rung: DeepRung): Promise<Box> {
  const box = new Box(mortal.engine, `points-${rung.toLowerCase()}`, rung);
  await box.start(rememberingPod);
  return box;
}

/** Lets a sandbox sleep and wake while a role is killed at a point of that; false when the cycle has no such point. */
async function sleepThrough(box: Box, death: Death): Promise<boolean> {
  mortal.arm(death);
  await mortal.surely(() => box.beginSleep());
  await mortal.surely(() => box.asleep());
  if (box.rung === "Hibernate") await until(() => takenSandboxes(mortal.engine).length === 0);
  await mortal.surely(() => box.beginWake());
  await mortal.surely(() => box.ready());
  if (box.rung === "Hibernate") await mortal.surely(() => restored(box));
  return mortal.disarm();
}

/** What was saved is discarded once all of it was read. */
async function restored(box: Box): Promise<void> {
  await mortal.engine.podWhere(box.name, (pod) => restoreOf(pod)?.state === "restored");
}

/** Effects of falling asleep and waking, in the order in which they first come. */
const effectsOf: Record<DeepRung, readonly string[]> = {
  Freeze: ["changeRules", "freezeCgroup", "thawCgroup"],
  Hibernate: [
    "changeRules",
    "saveSandbox",
    "deleteContainer",
    "releaseRootfs",
    "removeFiles",
    "removeCgroup",
    "releaseSlot",
    "ensureSlot",
    "ensureCgroup",
    "ensureEmptyDir",
    "writeFiles",
    "assignSlot",
    "prepareRootfs",
    "runContainer",
    "discardSaved",
  ],
};

/** A few points on every run; `AGENT_SANDBOX_TEST_FULL=1` goes through all, and through every role. */
function deathsOf(rung: DeepRung): readonly Death[] {
  if (isFull) return allDeaths(effectsOf[rung]);
  if (rung === "Freeze")
    return [
      { role: "node", effect: "freezeCgroup", when: "after" },
      { role: "sandbox-host", effect: "thawCgroup", when: "before" },
      { role: "control", effect: "freezeCgroup", when: "after" },
      { role: "router", effect: "thawCgroup", when: "after" },
    ];
  return [
    { role: "node", effect: "saveSandbox", when: "after" },
    { role: "sandbox-host", effect: "saveSandbox", when: "amid", delayMs: 30 },
    { role: "control", effect: "saveSandbox", when: "after" },
    { role: "node", effect: "runContainer", when: "after" },
    { role: "sandbox-host", effect: "runContainer", when: "amid", delayMs: 60 },
    { role: "sandbox-host", effect: "runContainer", when: "amid", delayMs: 240 },
    { role: "node", effect: "runContainer", when: "amid", delayMs: 60 },
    { role: "node", effect: "discardSaved", when: "before" },
    { role: "sandbox-host", effect: "discardSaved", when: "after" },
  ];
}

describe.each(deepRungs)("%s", (rung) => {
  let box: Box;
  let first: string;
  let held: Record<string, number>;

  beforeAll(async () => {
    box = await startBox(rung);
    first = (await memoryOf(box)).same;
    held = holdings(mortal.engine);
  }, 120_000);
  afterAll(async () => {
    await box?.remove();
  }, 60_000);

  test(`sleep points: a cycle of ${rung} goes through every point there is`, async () => {
    expect(await sleepThrough(box, { role: "node", effect: "none", when: "before" })).toBe(false);
    const seen = new Set<string>();
    mortal.door.arm();
    await box.sleep();
    await box.wake();
    if (rung === "Hibernate") await restored(box);
    for (const effect of mortal.door.effects) seen.add(effect);
    expect([...seen].toSorted()).toEqual([...effectsOf[rung]].toSorted());
  }, 120_000);

  test(`sleep points: kill -9 at points of ${rung} loses no memory, runs nothing twice and leaves nothing`, async () => {
    if (isFull) await mortal.startAnew();
    for (const death of deathsOf(rung)) {
      const what = `${death.role} ${death.when} ${death.effect}`;
      const before = await memoryOf(box);
      expect(await sleepThrough(box, death), what).toBe(true);
      const after = await memoryOf(box);
      expect(after.same, what).toBe(first);
      expect(after.ticks, what).toBeGreaterThan(before.ticks);
      expect(takenSandboxes(mortal.engine), what).toHaveLength(1);
      expect((await box.pod())?.status?.containerStatuses, what).toMatchObject([{ restartCount: 0 }]);
      await mortal.returned(held, what);
    }
  }, 3_600_000);
});
