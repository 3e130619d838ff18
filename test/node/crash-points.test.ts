import { cpSync, existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { type Pod, pods } from "@agent-sandbox/api";
import { type Client, createClient } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import { CrashingHost } from "./crashing-host.ts";
import { isReady, NodeWorld } from "./node-world.ts";

let world: NodeWorld;

beforeAll(async () => {
  world = await NodeWorld.start();
  await world.agent?.stop();
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

/** More effects than one start of the agent and of a pod has; the loop ends where the agent outlives it. */
const effectsMax = 60;

const spec = {
  terminationGracePeriodSeconds: 1,
  volumes: [{ name: "scratch", emptyDir: {} }],
  containers: [
    {
      name: "main",
      image: "host",
      command: ["sleep", "infinity"],
      volumeMounts: [{ name: "scratch", mountPath: "/scratch" }],
    },
  ],
};

/** An agent that is to die in the middle of a pod's start. */
interface CutOff {
  readonly name: string;
  readonly crashAt: number;
  readonly takesEffect: boolean;
  readonly sandboxesAhead?: number;
  /** Makes the pod's start the next thing to happen, once the agent is on its way. */
  readonly begin?: (crashing: CrashingHost) => Promise<void>;
  readonly check: (pod: Pod) => Promise<void>;
}

/** Lets an agent die and another take over, until the pod has come and gone; true when there were too few effects to die at. */
async function survives({ name, crashAt, takesEffect, sandboxesAhead = 0, begin, check }: CutOff): Promise<boolean> {
  // What the dead one still does is done to its own directory, which its successor never sees.
  const [first, second] = [path.join(world.dataDir, `${name}-first`), path.join(world.dataDir, `${name}-second`)];
  await mkdir(first);
  const onDeath = (): void => cpSync(first, second, { recursive: true, filter: (file) => !file.endsWith(".sock") });
  const crashing = new CrashingHost(world.fake, { crashAt, takesEffect, onDeath });
  const lifeline = mortalClient(world.client, crashing);
  const started = world
    .startAgent({ client: lifeline, host: crashing.host, dataDir: first, sandboxesAhead })
    .catch(() => undefined);
  await begin?.(crashing);
  await deathOrReady(crashing, name);
  const survived = !crashing.isDead;
  if (survived) onDeath();
  crashing.isDead = true;
  await started;
  await world.agent?.stop();
  await world.startAgent({ dataDir: second });
  const pod = await world.podWhere(name, isReady);
  await check(pod);
  await world.client.delete(pods, { namespace: "default", name }, { gracePeriodSeconds: 0 });
  await world.podGone(name);
  await forgotten(second, pod);
  expect(await leftovers()).toEqual([]);
  await world.agent?.stop();
  return survived;
}

test.each([
  ["before", false],
  ["after", true],
])(
  "crash points: an agent that dies right %s any effect of a start leaves one run and no leftovers",
  async (_when, takesEffect) => {
    let crashes = 0;
    for (let crashAt = 1; crashAt <= effectsMax; crashAt++) {
      const name = `p-${crashAt}-${takesEffect}`;
      await world.createPod(name, spec);
      const check = async (pod: Pod): Promise<void> => expect(await runsOf(pod)).toEqual(["0 running"]);
      if (await survives({ name, crashAt, takesEffect, check })) break;
      crashes += 1;
    }
    // Network, slots ahead, rules, cgroup, directories, files, address, root file system, container.
    expect(crashes).toBeGreaterThan(12);
    expect(crashes).toBeLessThan(effectsMax);
  },
  120_000,
);

test.each([
  ["before", false],
  ["after", true],
])(
  "crash points: an agent that dies right %s any effect of a start in a sandbox made ahead leaves one run and no leftovers",
  async (_when, takesEffect) => {
    let crashes = 0;
    for (let crashAt = 1; crashAt <= effectsMax; crashAt++) {
      const name = `w-${crashAt}-${takesEffect}`;
      const begin = async (crashing: CrashingHost): Promise<void> => {
        await deathOr(crashing, async () =>
          (await world.fake.listContainers()).some(({ status }) => status === "running"),
        );
        await world.createPod(name, spec);
      };
      const check = async (pod: Pod): Promise<void> => {
        const runs = (await world.fake.listContainers()).filter(({ id }) => !id.startsWith("ahead-"));
        expect(runs.map(({ status }) => status)).toEqual(["running"]);
        expect(pod.status?.containerStatuses?.[0]?.restartCount).toBe(0);
      };
      if (await survives({ name, crashAt, takesEffect, sandboxesAhead: 1, begin, check })) break;
      crashes += 1;
    }
    expect(crashes).toBeGreaterThan(15);
    expect(crashes).toBeLessThan(effectsMax);
  },
  120_000,
);

test("crash points: the address of a pod that was being started goes to no other", async () => {
  const dataDir = path.join(world.dataDir, "addresses");
  await mkdir(dataDir);
  await world.createPod("z-begun", spec);
  const broken: Host = new Proxy<Host>(world.fake, {
    get: (target, name) => {
      if (name === "prepareRootfs") return () => Promise.reject(new HostError("unavailable", "nobody answers"));
      const verb: unknown = Reflect.get(target, name, target);
      return typeof verb === "function" ? (verb.bind(target) as unknown) : verb;
    },
  });
  await world.startAgent({ host: broken, dataDir });
  const begun = await world.getPod("z-begun");
  await until(() => existsSync(path.join(dataDir, "sandboxes", begun.metadata.uid ?? "", "record.json")));
  await world.agent?.stop();
  for (const name of ["a-new", "b-new"]) await world.createPod(name, spec);
  await world.startAgent({ dataDir });
  const names = ["a-new", "b-new", "z-begun"];
  const started = await Promise.all(names.map((name) => world.podWhere(name, isReady)));
  expect(new Set(started.map(({ status }) => status?.podIP)).size).toBe(3);
});

async function until(question: () => boolean): Promise<void> {
  const signal = AbortSignal.timeout(20_000);
  while (!question()) {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A client whose requests hang from the moment its owner is dead. */
function mortalClient(client: Client, owner: CrashingHost): Client {
  const { transport } = client;
  return createClient({
    request: (request) => (owner.isDead ? Promise.reject(new Error("dead")) : transport.request(request)),
    upgrade: (request) => transport.upgrade(request),
    close: () => Promise.resolve(),
  });
}

async function deathOrReady(crashing: CrashingHost, name: string): Promise<void> {
  await deathOr(crashing, async () => isReady(await world.getPod(name)));
}

async function deathOr(crashing: CrashingHost, question: () => Promise<boolean>): Promise<void> {
  const signal = AbortSignal.timeout(20_000);
  while (!crashing.isDead && !(await question())) {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The record is the last thing of a pod to go. */
function forgotten(directory: string, pod: Pod): Promise<void> {
  return until(() => !existsSync(path.join(directory, "sandboxes", pod.metadata.uid ?? "")));
}

async function runsOf(pod: Pod): Promise<string[]> {
  const restarts = pod.status?.containerStatuses?.map(({ restartCount }) => restartCount) ?? [];
  const containers = await world.fake.listContainers();
  return containers.map(({ status }, index) => `${restarts[index]} ${status}`);
}

/** Everything the host still has, apart from slots made ahead. */
async function leftovers(): Promise<string[]> {
  const free = (await world.fake.listSlots()).filter(({ address }) => address === undefined).map(({ slot }) => slot);
  const nothing = {
    containers: [],
    rootfs: [],
    writableLayers: [],
    volumes: [],
    emptyDirs: [],
    files: [],
    cgroups: [],
    saved: [],
  };
  const { removed } = await world.fake.sweep({ ...nothing, slots: free, network: true });
  return removed.map(({ kind, name }) => `${kind} ${name}`);
}
