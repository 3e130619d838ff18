import { cpSync, existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { type Pod, pods } from "@agent-sandbox/api";
import { type Client, createClient } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
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
      // What the dead one still does is done to its own directory, which its successor never sees.
      const [first, second] = [path.join(world.dataDir, `${name}-first`), path.join(world.dataDir, `${name}-second`)];
      await mkdir(first);
      const onDeath = (): void => cpSync(first, second, { recursive: true, filter: (file) => !file.endsWith(".sock") });
      const crashing = new CrashingHost(world.fake, { crashAt, takesEffect, onDeath });
      const lifeline = mortalClient(world.client, crashing);
      const started = world
        .startAgent({ client: lifeline, host: crashing.host, dataDir: first })
        .catch(() => undefined);
      await deathOrReady(crashing, name);
      const survived = !crashing.isDead;
      if (survived) onDeath();
      crashing.isDead = true;
      await started;
      await world.agent?.stop();
      await world.startAgent({ dataDir: second });
      const pod = await world.podWhere(name, isReady);
      expect(await runsOf(pod)).toEqual(["0 running"]);
      await world.client.delete(pods, { namespace: "default", name }, { gracePeriodSeconds: 0 });
      await world.podGone(name);
      await forgotten(second, pod);
      expect(await leftovers()).toEqual([]);
      await world.agent?.stop();
      if (survived) break;
      crashes += 1;
    }
    // Network, slots ahead, rules, cgroup, directories, files, address, root file system, container.
    expect(crashes).toBeGreaterThan(12);
    expect(crashes).toBeLessThan(effectsMax);
  },
  120_000,
);

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
  const signal = AbortSignal.timeout(20_000);
  while (!crashing.isDead && !isReady(await world.getPod(name))) {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The record is the last thing of a pod to go. */
async function forgotten(directory: string, pod: Pod): Promise<void> {
  const signal = AbortSignal.timeout(20_000);
  while (existsSync(path.join(directory, "sandboxes", pod.metadata.uid ?? ""))) {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
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
  };
  const { removed } = await world.fake.sweep({ ...nothing, slots: free, network: true });
  return removed.map(({ kind, name }) => `${kind} ${name}`);
}
