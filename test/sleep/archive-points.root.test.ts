import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { restoreOf } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { holdings, takenSandboxes } from "../node/holdings.ts";
import { until } from "../node/real-engine.ts";
import { EngineRouter, routerFlags } from "../router/engine-router.ts";
import { ArchiveDirectory } from "./archive-directory.ts";
import { Box } from "./box.ts";
import { memoryOf, rememberingPod } from "./memory.ts";
import { allDeaths, type Death, isFull, MortalEngine, mortalRoles } from "./mortal-engine.ts";

let store: ArchiveDirectory;
let mortal: MortalEngine;
let router: EngineRouter;
let box: Box;
/** What the machine has while the sandbox is away, runs, and sleeps. */
let away: Record<string, number>;
let awake: Record<string, number>;
let asleep: Record<string, number>;
/** What must never change. */
let first: { readonly same: string; readonly sums: string; readonly address: string | undefined };

beforeAll(async () => {
  store = new ArchiveDirectory();
  mortal = await MortalEngine.open(...routerFlags, "--archive", store.path);
  router = await EngineRouter.of(mortal.engine);
  away = holdings(mortal.engine);
  box = new Box(mortal.engine, "away", "Hibernate");
  await box.start(rememberingPod);
  await box.sh("head -c 3000000 /dev/urandom > /file; head -c 1000000 /dev/urandom > /scratch/file");
  first = { same: (await memoryOf(box)).same, sums: await sums(), address: (await box.pod())?.status?.podIP };
  awake = holdings(mortal.engine);
  await box.sleep();
  // The last that goes of what only a sandbox that runs has.
  await until(() => holdings(mortal.engine)["namespaces"] === away["namespaces"]);
  asleep = holdings(mortal.engine);
  await box.wake();
}, 300_000);
afterAll(async () => {
  await mortal?.[Symbol.asyncDispose]();
  store?.[Symbol.dispose]();
}, 120_000);

const sums = (): Promise<string> => box.sh("sha256sum /file /scratch/file");

/** Lets the sandbox leave the machine and come back for a caller while a role is killed at a point of that; false when there is no such point. */
async function leaveThrough(death: Death): Promise<boolean> {
  const what = describeDeath(death);
  await box.sleep();
  await mortal.returned(asleep, `falling asleep before ${what}`);
  mortal.arm(death);
  await mortal.surely(() => box.beginArchive());
  await mortal.surely(() => box.archived());
  expect(await mortal.surely(() => box.isThere()), what).toBe(false);
  await assertAway(what);
  await mortal.surely(callIn);
  await mortal.surely(archiveGone);
  await assertSole(what);
  return mortal.disarm();
}

/** A caller brings it back. */
async function callIn(): Promise<void> {
  const { status, text } = await router.call(box.name, "/", { port: 8000 });
  if (status !== 200) throw new Error(`${status} ${text}`);
}

/** Resolves when the archive is given up for the Sandbox, all of whose memory was read. */
async function archiveGone(): Promise<void> {
  await box.ready();
  await mortal.engine.podWhere(box.name, (pod) => restoreOf(pod)?.state === "restored");
  await until(async () => (await box.archive()) === undefined, 60_000);
}

/** The archive is all there is of it. */
async function assertAway(what: string): Promise<void> {
  await mortal.returned(away, `leaving with ${what}`);
  await noneBelow(["writable/kept"], what);
  expect(store.files().length, what).toBeGreaterThan(1);
}

/** The Sandbox is all there is of it, and one of it runs. */
async function assertSole(what: string): Promise<void> {
  await mortal.returned(awake, what);
  expect(takenSandboxes(mortal.engine), what).toHaveLength(1);
  await noneBelow([], what);
  await until(() => store.files().length === 0, 30_000).catch(() => undefined);
  expect(store.files(), `what is in the store after ${what}`).toEqual([]);
}

/** It is the one that left. */
async function assertSame(ticks: number, what: string): Promise<void> {
  const memory = await memoryOf(box);
  const pod = await box.pod();
  expect({ same: memory.same, sums: await sums(), address: pod?.status?.podIP }, what).toEqual(first);
  expect(memory.ticks, what).toBeGreaterThan(ticks);
  expect(pod?.status?.containerStatuses, what).toMatchObject([{ restartCount: 0 }]);
}

/** Resolves when the helper and the node have nothing of an archive that is on its way, nor of snapshots, nor in these of the helper's directories. */
async function noneBelow(directories: readonly string[], what: string): Promise<void> {
  const { hostDir, nodeDir } = mortal.engine;
  const ofHost = ["archive/packing", "archive/unpacking", "snapshots", ...directories];
  const all = [
    ...ofHost.map((name) => path.join(hostDir, name)),
    ...["archive", "snapshots"].map((name) => path.join(nodeDir, name)),
  ];
  const left = (): string[] => all.flatMap(contentOf);
  await until(() => left().length === 0, 30_000).catch(() => undefined);
  expect(left(), `what is left on the disk after ${what}`).toEqual([]);
}

function contentOf(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory).map((name) => path.join(directory, name)) : [];
}

const describeDeath = ({ role, when, effect, call = 1, delayMs = 0 }: Death): string =>
  `${role} ${when} ${effect}, call ${call}, after ${delayMs} ms`;

/** Effects that come as often as something of the pod changes meanwhile. */
const byChange: ReadonlySet<string> = new Set(["changeRules", "ensureCgroup"]);

/** How often each effect comes from the sandbox's sleep to its return, in the order in which they first come; those of `byChange` at least once. */
const callsOf: Readonly<Record<string, number>> = {
  copySaved: 1,
  cloneImage: 6,
  packArchive: 2,
  sealArchive: 1,
  forgetArchive: 2,
  discardSaved: 3,
  changeRules: 1,
  removeEmptyDir: 6,
  deleteWritableLayer: 3,
  openArchive: 1,
  unpackArchive: 2,
  ensureSlot: 1,
  ensureCgroup: 1,
  ensureEmptyDir: 2,
  writeFiles: 2,
  assignSlot: 1,
  prepareRootfs: 1,
  runContainer: 1,
};

function countsOf(effects: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const effect of effects) counts[effect] = byChange.has(effect) ? 1 : (counts[effect] ?? 0) + 1;
  return counts;
}

/** Every role before and after every call. */
const aroundCalls = (): readonly Death[] =>
  allDeaths(Object.keys(callsOf)).flatMap((death) =>
    Array.from({ length: callsOf[death.effect] ?? 0 }, (_, index) => ({ ...death, call: index + 1 })),
  );

/** Every role some time after calls that writes to the API and to the store follow, which are no verbs. */
const betweenCalls = (): readonly Death[] =>
  [
    { effect: "packArchive", call: 2 },
    { effect: "forgetArchive", call: 1 },
    { effect: "discardSaved", call: 2 },
    { effect: "unpackArchive", call: 2 },
    { effect: "cloneImage", call: 6 },
    { effect: "runContainer", call: 1 },
    { effect: "forgetArchive", call: 2 },
  ].flatMap((point) =>
    [5, 60, 150, 300].flatMap((delayMs) =>
      mortalRoles.map((role): Death => ({ ...point, role, when: "amid", delayMs })),
    ),
  );

/** A few points on every run; `npm test -- --full` goes through all. */
const deaths: readonly Death[] = isFull
  ? [...aroundCalls(), ...betweenCalls()]
  : [
      { role: "node", effect: "copySaved", when: "after" },
      { role: "sandbox-host", effect: "cloneImage", when: "before", call: 2 },
      { role: "node", effect: "packArchive", when: "after", call: 2 },
      { role: "control", effect: "sealArchive", when: "after" },
      { role: "sandbox-host", effect: "discardSaved", when: "before" },
      { role: "router", effect: "openArchive", when: "after" },
      { role: "sandbox-host", effect: "unpackArchive", when: "amid", delayMs: 20, call: 2 },
      { role: "node", effect: "unpackArchive", when: "after", call: 2 },
      { role: "sandbox-host", effect: "runContainer", when: "amid", delayMs: 60 },
      { role: "node", effect: "forgetArchive", when: "after", call: 2 },
    ];

test("archive points: a sandbox that leaves and comes back goes through every point there is", async () => {
  const { ticks } = await memoryOf(box);
  await box.sleep();
  await mortal.returned(asleep, "falling asleep");
  mortal.door.arm();
  await box.leave();
  await assertAway("leaving");
  await callIn();
  await archiveGone();
  await assertSole("coming back");
  expect(countsOf(mortal.door.effects)).toEqual(callsOf);
  await assertSame(ticks, "coming back");
}, 120_000);

test("archive points: kill -9 while a sandbox leaves and comes back loses nothing of it, makes no second one and leaves nothing", async () => {
  if (isFull) await mortal.startAnew();
  for (const death of deaths) {
    const what = describeDeath(death);
    const { ticks } = await memoryOf(box);
    expect(await leaveThrough(death), what).toBe(true);
    await assertSame(ticks, what);
  }
}, 10_800_000);
