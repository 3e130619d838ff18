import {
  annotationKeys,
  findCondition,
  ignore,
  restoreOf,
  type Sandbox,
  type SandboxSnapshot,
  sandboxes,
  sandboxSnapshots,
  snapshotState,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { holdings, takenSandboxes } from "../node/holdings.ts";
import { until } from "../node/real-engine.ts";
import { Box } from "./box.ts";
import { type Memory, memoryOf, rememberingPod } from "./memory.ts";
import { allDeaths, type Death, isFull, MortalEngine } from "./mortal-engine.ts";

let mortal: MortalEngine;
let source: Box;
let held: Record<string, number>;

beforeAll(async () => {
  mortal = await MortalEngine.open();
  source = new Box(mortal.engine, "source", "Freeze");
  await source.start(rememberingPod);
  await memoryOf(source);
  held = holdings(mortal.engine);
}, 300_000);
afterAll(async () => {
  await mortal?.[Symbol.asyncDispose]();
}, 120_000);

const keyOf = (name: string): { namespace: string; name: string } => ({ namespace: "default", name });

/** Asks for a snapshot; one that is there already was asked for by a request whose answer was lost. */
async function askForSnapshot(name: string, sandboxName = source.name): Promise<void> {
  const object = {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: keyOf(name),
    spec: { sandboxName },
  };
  await mortal.engine.client.create(sandboxSnapshots, object as SandboxSnapshot).catch(ignore("AlreadyExists"));
}

/** How a snapshot has ended. */
async function endOf(name: string): Promise<string> {
  let state = "";
  await until(async () => {
    state = snapshotState(await mortal.engine.client.get(sandboxSnapshots, keyOf(name))).state;
    return state === "ready" || state === "failed";
  }, 60_000);
  return state;
}

/** A snapshot that is there as a whole; one that says that it failed has left nothing, and is asked for again under the same name. */
async function takeSurely(name: string): Promise<void> {
  await mortal.surely(() => askForSnapshot(name));
  if ((await mortal.surely(() => endOf(name))) === "ready") return;
  await mortal.surely(() => removeSnapshot(name));
  await mortal.surely(() => askForSnapshot(name));
  expect(await mortal.surely(() => endOf(name))).toBe("ready");
}

async function removeSnapshot(name: string): Promise<void> {
  const { client } = mortal.engine;
  await client.delete(sandboxSnapshots, keyOf(name)).catch(ignore("NotFound"));
  await until(async () => (await client.get(sandboxSnapshots, keyOf(name)).catch(ignore("NotFound"))) === undefined);
}

async function askForChild(name: string, snapshotName: string): Promise<void> {
  const object = {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: keyOf(name),
    spec: { podTemplate: { spec: rememberingPod }, restoreFrom: { snapshotName } },
  };
  await mortal.engine.client.create(sandboxes, object as Sandbox).catch(ignore("AlreadyExists"));
}

/** How the start of a child has ended. */
async function startOf(child: Box): Promise<string> {
  let reason = "";
  await until(async () => {
    const { status } = await child.object();
    reason = findCondition(status?.conditions, "Ready")?.reason ?? "";
    return reason === "DependenciesReady" || reason === "RestoreFailed";
  }, 60_000);
  return reason;
}

/** A child that runs; one that says that its restore failed is suspended and resumed, which tries again. */
async function startSurely(child: Box, snapshotName: string): Promise<void> {
  await mortal.surely(() => askForChild(child.name, snapshotName));
  if ((await mortal.surely(() => startOf(child))) === "RestoreFailed") {
    await mortal.surely(() => child.beginSleep());
    await mortal.surely(() => child.asleep());
    await mortal.surely(() => child.beginWake());
    expect(await mortal.surely(() => startOf(child))).toBe("DependenciesReady");
  }
  await mortal.surely(async () => {
    await mortal.engine.podWhere(child.name, (pod) => restoreOf(pod)?.state === "restored");
  });
}

/** Takes a snapshot and starts a child from it while a role is killed at a point of that; false when there is no such point. */
async function forkThrough(death: Death): Promise<{ readonly isReached: boolean; readonly child: Memory }> {
  const child = new Box(mortal.engine, "child", "Freeze");
  mortal.arm(death);
  await takeSurely("point");
  await startSurely(child, "point");
  await mortal.back();
  const memory = await memoryOf(child);
  expect(takenSandboxes(mortal.engine)).toHaveLength(2);
  await mortal.surely(() => child.remove());
  await mortal.surely(() => removeSnapshot("point"));
  return { isReached: await mortal.disarm(), child: memory };
}

/** Effects of one fork, from the snapshot to the end of its child, in the order in which they first come. */
const effects = [
  "saveSandbox",
  "cloneImage",
  "continueSandbox",
  "ensureSlot",
  "ensureCgroup",
  "ensureEmptyDir",
  "writeFiles",
  "assignSlot",
  "changeRules",
  "prepareRootfs",
  "runContainer",
  "killContainer",
  "deleteContainer",
  "releaseRootfs",
  "removeFiles",
  "removeCgroup",
  "releaseSlot",
  "discardSaved",
  "deleteWritableLayer",
  "removeEmptyDir",
] as const;

/** A few points on every run; `npm test -- --full` goes through all, and through every role. */
const deaths: readonly Death[] = isFull
  ? allDeaths(effects)
  : [
      { role: "node", effect: "saveSandbox", when: "after" },
      { role: "sandbox-host", effect: "saveSandbox", when: "amid", delayMs: 30 },
      { role: "sandbox-host", effect: "cloneImage", when: "before" },
      { role: "node", effect: "continueSandbox", when: "before" },
      { role: "node", effect: "runContainer", when: "after" },
      { role: "sandbox-host", effect: "runContainer", when: "amid", delayMs: 60 },
    ];

test("fork points: a fork goes through every point there is", async () => {
  expect(await forkThrough({ role: "node", effect: "none", when: "before" })).toMatchObject({ isReached: false });
  mortal.door.arm();
  await takeSurely("seen");
  const child = new Box(mortal.engine, "seen", "Freeze");
  await startSurely(child, "seen");
  await child.remove();
  await removeSnapshot("seen");
  await mortal.returned(held, "a fork");
  // What the snapshot had goes after its object.
  await until(() => mortal.door.effects.includes("discardSaved"));
  expect([...new Set(mortal.door.effects)].toSorted()).toEqual([...effects].toSorted());
}, 120_000);

test("fork points: kill -9 at points of a fork leaves the source running with its memory, gives its child the same, and leaves nothing", async () => {
  if (isFull) await mortal.startAnew();
  for (const death of deaths) {
    const what = `${death.role} ${death.when} ${death.effect}`;
    const before = await memoryOf(source);
    const { isReached, child } = await forkThrough(death);
    expect(isReached, what).toBe(true);
    const after = await memoryOf(source);
    expect([child.same, after.same], what).toEqual([before.same, before.same]);
    expect(child.ticks, what).toBeGreaterThan(before.ticks);
    expect(after.ticks, what).toBeGreaterThan(before.ticks);
    expect((await source.pod())?.status?.containerStatuses, what).toMatchObject([{ restartCount: 0 }]);
    await mortal.returned(held, what);
  }
}, 3_600_000);

/** A sandbox that is stopped when it sleeps, and its snapshot, to which it goes back at every wake. */
async function startReturner(): Promise<Box> {
  const box = new Box(mortal.engine, "returner", "Freeze");
  await box.start(rememberingPod, { suspensionStrategy: { type: "Stop" } });
  await memoryOf(box);
  await askForSnapshot("back", box.name);
  expect(await endOf("back")).toBe("ready");
  const metadata = { annotations: { [annotationKeys.restartFrom]: "back" } };
  await mortal.engine.client.patch(sandboxes, keyOf(box.name), { type: "merge", body: { metadata } });
  return box;
}

/** Lets a sandbox go back while a role is killed at a point of that. */
async function goBackThrough(box: Box, death: Death): Promise<boolean> {
  await box.beginSleep();
  await box.asleep();
  mortal.arm(death);
  await mortal.surely(() => box.beginWake());
  if ((await mortal.surely(() => startOf(box))) === "RestoreFailed") {
    await mortal.surely(() => box.beginSleep());
    await mortal.surely(() => box.asleep());
    await mortal.surely(() => box.beginWake());
    expect(await mortal.surely(() => startOf(box))).toBe("DependenciesReady");
  }
  await mortal.surely(async () => {
    await mortal.engine.podWhere(box.name, (pod) => restoreOf(pod)?.state === "restored");
  });
  await until(async () => (await box.object()).status?.restart === undefined);
  return mortal.disarm();
}

/** Those of a start from a snapshot, and the end of the files from before. */
const returnDeaths: readonly Death[] = isFull
  ? allDeaths(["cloneImage", "prepareRootfs", "runContainer", "deleteWritableLayer"])
  : [
      { role: "sandbox-host", effect: "cloneImage", when: "before" },
      { role: "node", effect: "runContainer", when: "after" },
      { role: "node", effect: "deleteWritableLayer", when: "before" },
    ];

test("fork points: kill -9 while a sandbox goes back to its snapshot gives it the memory and files of then, and leaves nothing", async () => {
  const box = await startReturner();
  const first = await memoryOf(box);
  const kept = holdings(mortal.engine);
  for (const death of returnDeaths) {
    const what = `${death.role} ${death.when} ${death.effect}`;
    await box.sh("echo since > /since");
    expect(await goBackThrough(box, death), what).toBe(true);
    expect((await memoryOf(box)).same, what).toBe(first.same);
    expect(await box.sh("ls /since 2>/dev/null | wc -l"), what).toBe("0\n");
    await mortal.returned(kept, what);
  }
  await box.remove();
  await removeSnapshot("back");
}, 3_600_000);
