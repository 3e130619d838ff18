import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { isReasonOf, type Pod, pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type EngineRole, roleProcess, roleReturned } from "./engine-processes.ts";
import { processTable } from "./footprint.ts";
import { HostDoor, type Point } from "./host-door.ts";
import { isReady, RealEngine, until as untilWithin } from "./real-engine.ts";

/** Sandboxes that run commands while engine processes die. They pause long enough for twenty to leave the processors to the engine. */
const names = Array.from({ length: 20 }, (_, index) => `worker-${index}`);
const counting = (pause: string): string => `i=0; while :; do i=$((i+1)); echo $i; sleep ${pause}; done`;

/** Twenty sandboxes on a busy machine are slow, not broken. */
const until = (question: () => boolean | Promise<boolean>): Promise<void> => untilWithin(question, 120_000);

let engine: RealEngine;
let door: HostDoor;

beforeAll(async () => {
  // Every life is to go through the same points. Those of a sandbox made ahead are in crash-points.test.ts and waiting-sandboxes.root.test.ts.
  engine = await RealEngine.open("--sandboxes-ahead", "0");
  door = new HostDoor(engine);
  await door.stand();
  // The agent's open connections still go past the door.
  const node = roleProcess(engine, "node") ?? 0;
  process.kill(node, "SIGKILL");
  await roleReturned(engine, "node", node);
  await Promise.all(names.map((name) => engine.startPod(name, { command: ["sh", "-c", counting("1")] })));
  await until(async () => (await listed(names)).filter(isReady).length === names.length);
  await Promise.all(
    names.map((name) =>
      engine.sh(name, `nohup sh -c '${counting("1.3")}' > /tmp/count 2>&1 < /dev/null & echo $! > /tmp/pid`),
    ),
  );
}, 300_000);

afterAll(async () => {
  await door[Symbol.asyncDispose]();
  await engine[Symbol.asyncDispose]();
}, 120_000);

async function listed(wanted: readonly string[]): Promise<Pod[]> {
  const { items } = await engine.client.list(pods, { namespace: "default" });
  return items.filter(({ metadata }) => wanted.includes(metadata.name));
}

/** Which runs there are: a restarted one has another container id or a count. */
async function runs(): Promise<string[]> {
  const all = await listed(names);
  return all
    .map(({ metadata, status }) => {
      const [container] = status?.containerStatuses ?? [];
      return `${metadata.name} ${container?.containerID} ${container?.restartCount} ${status?.podIP}`;
    })
    .sort();
}

/** What the machine has of running sandboxes; a sandbox that came and went leaves it as it was. */
function holdings(): Record<string, number> {
  const entries = (dir: string): number => (existsSync(dir) ? readdirSync(dir).length : 0);
  const below = (dir: string): number => entries(path.join(engine.dataDir, dir));
  const cgroup = path.join("/sys/fs/cgroup/memory", `agent-sandbox-${engine.instance}`);
  return {
    processes: processTable().filter(({ command }) => command.startsWith("runsc") && command.includes(engine.dataDir))
      .length,
    mounts: mountPoints().filter((point) => point.startsWith(engine.dataDir)).length,
    containers: below("containers"),
    roots: below("rootfs"),
    writable: below("writable/ephemeral"),
    files: below("files"),
    logs: below("empty"),
    records: below("sandboxes"),
    cgroups: existsSync(cgroup)
      ? readdirSync(cgroup, { withFileTypes: true }).filter((e) => e.isDirectory()).length
      : 0,
  };
}

/** Where the engine's namespace has mounts. */
function mountPoints(): string[] {
  const lines = engine.place.must("cat", "/proc/mounts").trim().split("\n");
  return lines.map((line) => line.split(" ")[1] ?? "");
}

async function logOf(name: string): Promise<number[]> {
  const { body, status } = await engine.client.transport.request({
    method: "GET",
    path: `/api/v1/namespaces/default/pods/${name}/log`,
  });
  const log = await text(Readable.from(body));
  return status === 200 ? log.trim().split("\n").map(Number) : [];
}

const isWhole = (counts: readonly number[]): boolean => counts.every((count, index) => count === index + 1);

/** No command was restarted, none lost a line, and each goes on. */
async function expectUnbroken(before: readonly string[]): Promise<void> {
  await until(async () => (await listed(names)).every(isReady));
  expect(await runs()).toEqual(before);
  await Promise.all(
    names.map(async (name) => {
      const seen = await logOf(name);
      expect(isWhole(seen), `${name} lost output`).toBe(true);
      await until(async () => (await logOf(name)).length > seen.length);
    }),
  );
  await Promise.all(
    names.map(async (name) => {
      const { stdout } = await engine.sh(name, "kill -0 $(cat /tmp/pid) && cat /tmp/count");
      expect(isWhole(stdout.trim().split("\n").map(Number)), `the command in ${name} lost output`).toBe(true);
    }),
  );
}

/** Kills a role when a sandbox's life gets to a point; false when that life has no such point. */
async function liveThrough(role: EngineRole, point: Point): Promise<boolean> {
  const name = `passing-${role}-${point.verb.toLowerCase()}-${point.when}`;
  let victim = 0;
  const strike = (): boolean => {
    victim = roleProcess(engine, role) ?? 0;
    process.kill(victim, "SIGKILL");
    // A call of one that is dead was never made, and an answer to one has nobody to hear it.
    return role === "control" || role === "router";
  };
  door.arm({ ...point, strike });
  const back = async (): Promise<void> => {
    if (victim === 0) return;
    await roleReturned(engine, role, victim);
    if (role === "sandbox-host") await until(() => door.isReplaced);
    await door.stand();
    victim = 0;
  };
  // The API may be the one that dies, of what is still given back of the one before: then nobody knows whether it was made.
  await until(async () => {
    await back();
    return engine.startPod(name, { command: ["sh", "-c", "echo began; exec sleep infinity"] }).then(
      () => true,
      (error: unknown) => isReasonOf(error, "AlreadyExists"),
    );
  });
  const states = async (): Promise<Pod | undefined> => (await listed([name]).catch(() => []))[0];
  await until(async () => (await back(), isReady((await states()) ?? ({} as Pod))));
  expect((await states())?.status?.containerStatuses?.[0]?.restartCount).toBe(0);
  await until(async () =>
    engine.client.delete(pods, { namespace: "default", name }, { gracePeriodSeconds: 1 }).then(
      () => true,
      () => false,
    ),
  );
  await until(async () => (await back(), (await listed([name]).catch(() => [undefined])).length === 0));
  // What is given back, and what is made ahead again, follows the API object's end.
  if (verbs.includes(point.verb)) await until(() => !door.isArmed);
  await back();
  const isReached = !door.isArmed;
  door.arm();
  return isReached;
}

/** Every effect of a sandbox's life; slots are made ahead of it, and made again when one was taken. */
const verbs = [
  "ensureCgroup",
  "ensureEmptyDir",
  "writeFiles",
  "assignSlot",
  "prepareRootfs",
  "applyRules",
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

/** A process that dies at a point. */
type Death = Point & { readonly role: EngineRole };

interface Part {
  readonly title: string;
  readonly deaths: readonly Death[];
}

/** The processes take turns, so that their supervisor seldom has cause to keep one waiting. */
function everyDeath(): Part[] {
  const roles = ["node", "sandbox-host", "control", "router"] as const;
  const starts = [0, 5, 10];
  return (["before", "after"] as const).flatMap((when) =>
    starts.map((from) => {
      const some = verbs.slice(from, from + 5);
      const deaths = some.flatMap((verb) => roles.map((role) => ({ role, verb, when })));
      return { title: `of each process ${when} ${some.join(", ")}`, deaths };
    }),
  );
}

/** A few points on every run; `AGENT_SANDBOX_TEST_FULL=1` goes through all, and through every role. */
const parts: readonly Part[] =
  process.env["AGENT_SANDBOX_TEST_FULL"] === "1"
    ? everyDeath()
    : [
        {
          title: "at six points",
          deaths: [
            { role: "node", verb: "prepareRootfs", when: "after" },
            { role: "sandbox-host", verb: "runContainer", when: "before" },
            { role: "control", verb: "runContainer", when: "after" },
            { role: "node", verb: "runContainer", when: "after" },
            { role: "sandbox-host", verb: "releaseRootfs", when: "after" },
            { role: "node", verb: "deleteContainer", when: "before" },
          ],
        },
      ];

/** A role that dies again and again is given pauses of up to ten seconds by its supervisor, and each life takes a while. */
const deathLimitMs = 40_000;

test("survival points: a sandbox's life goes through every point there is", async () => {
  const before = holdings();
  expect(await liveThrough("node", { verb: "none", when: "before" })).toBe(false);
  door.arm();
  await engine.startPod("plain");
  await engine.readyPod("plain");
  await engine.client.delete(pods, { namespace: "default", name: "plain" }, { gracePeriodSeconds: 1 });
  await until(() => JSON.stringify(holdings()) === JSON.stringify(before));
  await until(() => verbs.every((verb) => door.verbs.includes(verb)));
  expect([...new Set(door.verbs)].toSorted()).toEqual(verbs.toSorted());
}, 300_000);

test.each(parts)(
  "survival points: kill -9 $title restarts nothing, loses no output and leaves nothing",
  async ({ deaths }) => {
    const [before, held] = [await runs(), holdings()];
    for (const { role, ...point } of deaths)
      expect(await liveThrough(role, point), `${role} ${point.when} ${point.verb}`).toBe(true);
    await expectUnbroken(before);
    await until(() => JSON.stringify(holdings()) === JSON.stringify(held));
  },
  180_000 + 20 * deathLimitMs,
);
