import { isDeepStrictEqual } from "node:util";
import { isReasonOf, type Pod, pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EngineRole, killAll, roleProcess, roleReturned } from "./engine-processes.ts";
import { holdings, takenSandboxes, waitingSandboxes } from "./holdings.ts";
import { HostDoor, type Point } from "./host-door.ts";
import { isReady, RealEngine, until } from "./real-engine.ts";
import { WorkingSandboxes } from "./working-sandboxes.ts";

/** Sandboxes that run commands while engine processes die. */
const workerCount = 20;

const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";

let engine: RealEngine;
let door: HostDoor;
let workers: WorkingSandboxes;

beforeAll(async () => {
  engine = await RealEngine.open("--sandboxes-ahead", "0");
  door = new HostDoor(engine);
  await standInFront();
  workers = await WorkingSandboxes.start(engine, workerCount);
}, 300_000);

afterAll(async () => {
  await door[Symbol.asyncDispose]();
  await engine[Symbol.asyncDispose]();
}, 120_000);

/** Puts the door in front of the agent's helper. */
async function standInFront(): Promise<void> {
  await door.stand();
  // The agent's open connections still go past the door.
  const node = roleProcess(engine, "node") ?? 0;
  process.kill(node, "SIGKILL");
  await roleReturned(engine, "node", node);
}

/** Kills the whole engine and starts another: its supervisor has no process yet that died so often that it is started with a delay. */
async function startAnew(...flags: readonly string[]): Promise<void> {
  await killAll(engine);
  engine.up(...flags);
  await engine.connect();
  door.forgetAhead();
  await standInFront();
}

/** What one sandbox's life is cut off at. */
interface Death extends Point {
  readonly role: EngineRole;
}

/** Kills a role when a sandbox's life gets to a point; false when that life has no such point. */
async function liveThrough({ role, ...point }: Death, effects: readonly string[]): Promise<boolean> {
  const name = `passing-${role}-${point.effect.toLowerCase().replace(" ", "-")}-${point.when}`;
  const taken = takenSandboxes(engine).length;
  let victim = 0;
  let standing = Promise.resolve();
  const strike = (): boolean => {
    victim = roleProcess(engine, role) ?? 0;
    process.kill(victim, "SIGKILL");
    if (role === "node") door.forgetAhead();
    if (role === "sandbox-host") standing = door.standAgain(victim);
    // A call of one that is dead was never made, and an answer to one is not read.
    return role === "control" || role === "router";
  };
  door.arm({ ...point, strike });
  const back = async (): Promise<void> => {
    if (victim === 0) return;
    await standing;
    await roleReturned(engine, role, victim);
    victim = 0;
  };
  const isStruck = async (): Promise<boolean> => (await back(), !door.isArmed);
  // The API may be the one that dies, of what is still given back of the one before: then it is not known whether it was made.
  await until(async () => {
    await back();
    return engine.startPod(name, { command: ["sh", "-c", "echo began; exec sleep infinity"] }).then(
      () => true,
      (error: unknown) => isReasonOf(error, "AlreadyExists"),
    );
  });
  let pod: Pod | undefined;
  const isUp = async (): Promise<boolean> => {
    await back();
    [pod] = await listed(name).catch(() => []);
    return pod !== undefined && isReady(pod) && takenSandboxes(engine).length === taken + 1;
  };
  await until(isUp);
  // The next sandbox is made ahead while this one is there.
  if (point.effect.startsWith("making")) await until(async () => (await isStruck()) && (await isUp()));
  expect(pod?.status?.containerStatuses?.[0]?.restartCount).toBe(0);
  await until(async () =>
    engine.client.delete(pods, { namespace: "default", name }, { gracePeriodSeconds: 1 }).then(
      () => true,
      () => false,
    ),
  );
  await until(async () => (await back(), (await listed(name).catch(() => [undefined])).length === 0));
  // What is given back, and what is made ahead again, follows the API object's end.
  if (effects.includes(point.effect)) await until(isStruck);
  await back();
  const isReached = !door.isArmed;
  door.arm();
  return isReached;
}

async function listed(name: string): Promise<Pod[]> {
  const { items } = await engine.client.list(pods, { namespace: "default" });
  return items.filter(({ metadata }) => metadata.name === name);
}

/** Resolves when the machine has what it had, and no more. */
async function returned(held: Record<string, number>, what: string): Promise<void> {
  const differing = (): string[] =>
    Object.entries(holdings(engine))
      .filter(([kind, count]) => count !== held[kind])
      .map(([kind, count]) => `${count} ${kind} instead of ${held[kind]}`);
  await until(() => differing().length === 0).catch(() => undefined);
  expect(differing().join(", "), `what the machine has after ${what}`).toBe("");
}

/** Goes through a life without a kill, and resolves with every effect that it had. */
async function plainLife(held: Record<string, number>, effects: readonly string[]): Promise<string[]> {
  door.arm();
  await engine.startPod("plain");
  await engine.readyPod("plain");
  await engine.client.delete(pods, { namespace: "default", name: "plain" }, { gracePeriodSeconds: 1 });
  await returned(held, "a plain life");
  await until(() => effects.every((effect) => door.effects.includes(effect)));
  return [...new Set(door.effects)].toSorted();
}

interface Part {
  readonly title: string;
  readonly deaths: readonly Death[];
}

/** The processes take turns, so that their supervisor seldom has cause to keep one waiting. */
function everyDeath(effects: readonly string[]): Part[] {
  const roles = ["node", "sandbox-host", "control", "router"] as const;
  const starts = Array.from({ length: Math.ceil(effects.length / 5) }, (_, index) => 5 * index);
  return (["before", "after"] as const).flatMap((when) =>
    starts.map((from) => {
      const some = effects.slice(from, from + 5);
      const deaths = some.flatMap((effect) => roles.map((role) => ({ role, effect, when })));
      return { title: `of each process ${when} ${some.join(", ")}`, deaths };
    }),
  );
}

/** Moments in the boot of a sandbox, which takes about 150 ms. */
const bootDelaysMs = [10, 40, 80, 120];

/** Moments in the start of a container that joins one, which takes half of that. */
const joinDelaysMs = [5, 15, 25, 35, 50];

/** What is amid a verb is the helper's own effects, and an agent that hears of none of them. */
function amid(effect: string, delaysMs: readonly number[]): Part {
  const deaths = delaysMs.flatMap((delayMs) =>
    (["node", "sandbox-host"] as const).map((role) => ({ role, effect, when: "amid" as const, delayMs })),
  );
  return { title: `of agent and helper amid ${effect}`, deaths };
}

/** A role that dies again and again is given pauses of up to ten seconds by its supervisor, and each life takes a while. */
const partLimitMs = 180_000 + 20 * 40_000;

describe("A life in a sandbox of its own", () => {
  /** Every effect of it; slots are made ahead of it, and made again when one was taken. */
  const effects = [
    "ensureCgroup",
    "ensureEmptyDir",
    "writeFiles",
    "assignSlot",
    "prepareRootfs",
    "changeRules",
    "ensureSlot",
    "runContainer",
    "killContainer",
    "deleteContainer",
    "releaseRootfs",
    "removeFiles",
    "removeCgroup",
    "releaseSlot",
    "removeEmptyDir",
  ];

  /** A few points on every run; `AGENT_SANDBOX_TEST_FULL=1` goes through all, and through every role. */
  const parts: readonly Part[] = isFull
    ? [...everyDeath(effects), amid("runContainer", bootDelaysMs)]
    : [
        {
          title: "at six points",
          deaths: [
            { role: "node", effect: "prepareRootfs", when: "after" },
            { role: "sandbox-host", effect: "runContainer", when: "before" },
            { role: "control", effect: "runContainer", when: "after" },
            { role: "node", effect: "runContainer", when: "after" },
            { role: "sandbox-host", effect: "releaseRootfs", when: "after" },
            { role: "node", effect: "deleteContainer", when: "before" },
          ],
        },
      ];

  test("survival points: a sandbox's life goes through every point there is", async () => {
    const held = holdings(engine);
    expect(await liveThrough({ role: "node", effect: "none", when: "before" }, effects)).toBe(false);
    expect(await plainLife(held, effects)).toEqual(effects.toSorted());
  }, 300_000);

  test.each(parts.map(({ title, deaths }) => [title, deaths] as const))(
    "survival points: kill -9 %s restarts nothing, loses no output and leaves nothing",
    async (title, deaths) => {
      const [before, held] = [await workers.runs(), holdings(engine)];
      if (isFull) await startAnew();
      for (const death of deaths)
        expect(await liveThrough(death, effects), `${death.role} ${death.when} ${death.effect}`).toBe(true);
      await workers.expectUnbroken(before);
      await returned(held, title);
    },
    partLimitMs,
  );
});

describe("A life in a sandbox made ahead", () => {
  /** Every effect of it, and of the making of the next one. */
  const effects = [
    "ahead ensureCgroup",
    "writeFiles",
    "prepareRootfs",
    "changeRules",
    "runContainer",
    "ensureSlot",
    "making ensureCgroup",
    "making prepareRootfs",
    "making ensureEmptyDir",
    "making runContainer",
    "killContainer",
    "ahead killContainer",
    "ahead deleteContainer",
    "deleteContainer",
    "ahead releaseRootfs",
    "releaseRootfs",
    "removeFiles",
    "ahead removeCgroup",
    "releaseSlot",
    "ahead removeEmptyDir",
  ];

  /** A few points on every run; `AGENT_SANDBOX_TEST_FULL=1` goes through all, and through every role. */
  const parts: readonly Part[] = isFull
    ? [...everyDeath(effects), amid("runContainer", joinDelaysMs), amid("making runContainer", bootDelaysMs)]
    : [
        {
          title: "at six points of what is made ahead",
          deaths: [
            { role: "sandbox-host", effect: "making runContainer", when: "after" },
            { role: "node", effect: "runContainer", when: "after" },
            { role: "sandbox-host", effect: "runContainer", when: "amid", delayMs: 25 },
            { role: "control", effect: "runContainer", when: "after" },
            { role: "node", effect: "making runContainer", when: "after" },
            { role: "sandbox-host", effect: "making prepareRootfs", when: "before" },
          ],
        },
      ];

  let held: Record<string, number> = {};

  /** Resolves when one sandbox waits that the agent would give to a pod. */
  async function oneWaits(what: string): Promise<void> {
    const known = (): boolean[] => waitingSandboxes(engine).map((id) => door.knowsAhead(id));
    await until(() => isDeepStrictEqual(known(), [true])).catch(() => undefined);
    expect(known(), `which waiting sandboxes the agent knows after ${what}`).toEqual([true]);
  }

  beforeAll(async () => {
    const before = await workers.runs();
    await startAnew("--sandboxes-ahead", "1");
    await oneWaits("a restart");
    await workers.expectUnbroken(before);
    held = holdings(engine);
  }, 300_000);

  test("survival points: a life in a sandbox made ahead goes through every point there is", async () => {
    expect(await plainLife(held, effects)).toEqual(effects.toSorted());
    await oneWaits("a plain life");
  }, 300_000);

  test.each(parts.map(({ title, deaths }) => [title, deaths] as const))(
    "survival points: kill -9 %s leaves the working sandboxes whole, and one sandbox waiting",
    async (_title, deaths) => {
      const before = await workers.runs();
      if (isFull) await startAnew();
      await oneWaits("a start");
      for (const death of deaths) {
        const what = `${death.role} ${death.delayMs ?? ""} ${death.when} ${death.effect}`;
        expect(await liveThrough(death, effects), what).toBe(true);
        await returned(held, what);
        // Whether the next life meets a sandbox made ahead is a question of the moment otherwise.
        await oneWaits(what);
      }
      await workers.expectUnbroken(before);
    },
    partLimitMs,
  );
});
