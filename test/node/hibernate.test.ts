import { readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  findCondition,
  type Pod,
  pods,
  restoreOf,
  type Sandbox,
  type SleepWish,
  sandboxes,
  sleepAnswerOf,
} from "@agent-sandbox/api";
import { createClient, systemClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { FaultyTransport } from "../../packages/kube/src/testing/faulty-transport.ts";
import type { RunContainerRequest } from "../../packages/server/src/node/host/container.ts";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import { isReady, NodeWorld } from "./node-world.ts";
import { createPodOf, nameWish, startSandbox } from "./sleeping-sandbox.ts";

const hibernate: SleepWish = { id: "1", rung: "Hibernate" };
const isSaved = (pod: Pod): boolean => sleepAnswerOf(pod)?.reason === "Saved";
const isRestored = (pod: Pod): boolean => restoreOf(pod)?.state === "restored";
const scratch = { volumeMounts: [{ name: "scratch", mountPath: "/scratch" }] };
const volumes = { volumes: [{ name: "scratch", emptyDir: {} }] };

async function start(world: NodeWorld, name = "box"): Promise<Sandbox> {
  const containers = [{ name: "main", image: "host", command: ["sleep", "1d"], ...scratch }];
  return startSandbox(world, name, {}, { podTemplate: { spec: { containers, ...volumes } } } as Partial<
    Sandbox["spec"]
  >);
}

/** Saves the memory of a Sandbox's pod and takes the pod away, as the controller does. */
async function putToSleep(world: NodeWorld, sandbox: Sandbox): Promise<Pod> {
  const name = sandbox.metadata.name;
  await nameWish(world, sandbox, hibernate);
  const saved = await world.podWhere(name, isSaved);
  await nameWish(world, sandbox, { ...hibernate, savedAt: "2026-01-01T00:00:00Z", savedBytes: 1 << 20 });
  await world.client.delete(pods, { namespace: "default", name });
  await world.podGone(name);
  return saved;
}

const dirsOf = async (world: NodeWorld): Promise<string[]> =>
  (await world.fake.listEmptyDirs()).map(({ id }) => id).sort();

test("node hibernate: the memory is saved, the pod goes without its grace period, and the next one is restored into its directories", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  const dirs = await dirsOf(world);
  expect(dirs.length).toBeGreaterThan(1);
  for (let cycle = 0; cycle < 2; cycle += 1) {
    const startMs = performance.now();
    const saved = await putToSleep(world, sandbox);
    expect(performance.now() - startMs).toBeLessThan(15_000);
    expect(sleepAnswerOf(saved)).toMatchObject({ id: "1", savedBytes: 1 << 20 });
    expect(findCondition(saved.status?.conditions, "Ready")?.reason).toBe("Saved");
    expect(await world.fake.listContainers()).toEqual([]);
    expect(await world.fake.listSaved()).toHaveLength(1);
    expect(await dirsOf(world)).toEqual(dirs);
    await createPodOf(world, sandbox);
    const restored = await world.podWhere("box", (pod) => isRestored(pod) && isReady(pod));
    expect(restored.metadata.uid).not.toBe(saved.metadata.uid);
    expect(restored.status?.podIP).toBe("10.200.0.77");
    expect(await world.fake.listSaved()).toEqual([]);
    expect(await dirsOf(world)).toEqual(dirs);
    await nameWish(world, sandbox, null);
  }
  await world.client.delete(sandboxes, { namespace: "default", name: "box" });
  await world.client.delete(pods, { namespace: "default", name: "box" }, { gracePeriodSeconds: 0 });
  await world.podGone("box");
  expect(await dirsOf(world)).toEqual([]);
});

test("node hibernate: a wish that is withdrawn discards what was saved and lets the processes go on", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  await nameWish(world, sandbox, hibernate);
  const saved = await world.podWhere("box", isSaved);
  await nameWish(world, sandbox, null);
  const awake = await world.podWhere("box", isReady);
  expect(awake.metadata.uid).toBe(saved.metadata.uid);
  expect(awake.status?.containerStatuses).toMatchObject([{ restartCount: 0 }]);
  expect(await world.fake.listSaved()).toEqual([]);
});

test("node hibernate: what was saved stays where the node hears of its Sandbox before it hears of its own answer", async () => {
  await using world = await NodeWorld.start();
  await world.agent?.stop();
  let lags = false;
  const transport = new FaultyTransport({
    transport: world.client.transport,
    random: () => 0.99,
    clock: systemClock,
    rates: ({ path }) => (lags && path.startsWith("/api/v1/pods?") ? { eventDelayed: 1 } : {}),
    delayMaxMs: 1_000,
  });
  await world.startAgent({ client: createClient(transport) });
  const sandbox = await start(world);
  lags = true;
  await putToSleep(world, sandbox);
  expect(await world.fake.listSaved()).toHaveLength(1);
  lags = false;
  await createPodOf(world, sandbox);
  await world.podWhere("box", (pod) => isRestored(pod) && isReady(pod));
});

test("node hibernate: a save that fails is said, and the processes run on", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  world.fake.saved.saveFails = new HostError("no-space", "the disk is short");
  await nameWish(world, sandbox, hibernate);
  const failed = await world.podWhere("box", (pod) => sleepAnswerOf(pod)?.reason === "SleepFailed");
  expect(sleepAnswerOf(failed)?.message).toBe("the disk is short");
  expect(isReady(failed)).toBe(true);
  world.fake.saved.saveFails = undefined;
  await world.podWhere("box", isSaved);
});

test("node hibernate: memory is not saved on a machine that does not restore a sandbox of the node's own, and is as soon as it does", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  world.fake.saved.restoreFails = new HostError("restore-failed", "no such page");
  await nameWish(world, sandbox, hibernate);
  const refused = await world.podWhere("box", (pod) => sleepAnswerOf(pod)?.reason === "SleepFailed");
  expect(sleepAnswerOf(refused)?.message).toBe("this machine could not restore a test sandbox: no such page");
  expect(await world.fake.listSaved()).toEqual([]);
  expect(await world.fake.listContainers()).toHaveLength(1);
  world.fake.saved.restoreFails = undefined;
  await world.podWhere("box", isSaved);
  expect(await readFile(join(world.dataDir, "restore-test.json"), "utf8")).toBe('{"runsc":"fake-1","kernel":"fake"}');
  expect(await world.fake.listSaved()).toHaveLength(1);
});

test("node hibernate: a restore that fails keeps what was saved, and the pod fails; without memory it starts when its user says so", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  await putToSleep(world, sandbox);
  world.fake.saved.restoreFails = new HostError("restore-failed", "a page cannot be read");
  await createPodOf(world, sandbox);
  const failed = await world.podWhere("box", ({ status }) => status?.phase === "Failed");
  expect(restoreOf(failed)).toEqual({ state: "failed", message: "a page cannot be read" });
  world.fake.saved.restoreFails = undefined;
  await world.client.delete(pods, { namespace: "default", name: "box" }, { gracePeriodSeconds: 0 });
  await world.podGone("box");
  expect(await world.fake.listSaved()).toHaveLength(1);
  expect((await dirsOf(world)).length).toBeGreaterThan(1);
  await createPodOf(world, sandbox);
  const refused = await world.podWhere("box", ({ status }) => status?.phase === "Failed");
  expect(restoreOf(refused)).toEqual({ state: "failed", message: "a restore of it began and did not end" });
  await world.client.delete(pods, { namespace: "default", name: "box" }, { gracePeriodSeconds: 0 });
  await world.podGone("box");
  const cold = { metadata: { annotations: { "agent-sandbox.dev/cold-start": "1" } } };
  await world.client.patch(sandboxes, { namespace: "default", name: "box" }, { type: "merge", body: cold });
  await createPodOf(world, sandbox);
  const awake = await world.podWhere("box", isReady);
  expect(restoreOf(awake)).toBeUndefined();
  expect(await world.fake.listSaved()).toEqual([]);
});

test("node hibernate: an agent that comes back while memory is on disk goes on from there, at every step", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  const dirs = await dirsOf(world);
  const again = async (): Promise<void> => {
    await world.agent?.stop();
    await world.startAgent();
  };
  await nameWish(world, sandbox, hibernate);
  await world.podWhere("box", isSaved);
  await again();
  await world.agent?.idle();
  expect(isSaved(await world.getPod("box"))).toBe(true);
  await nameWish(world, sandbox, { ...hibernate, savedAt: "2026-01-01T00:00:00Z" });
  await world.agent?.stop();
  await world.client.delete(pods, { namespace: "default", name: "box" });
  await world.startAgent();
  await world.podGone("box");
  await again();
  expect(await dirsOf(world)).toEqual(dirs);
  expect(await world.fake.listSaved()).toHaveLength(1);
  await createPodOf(world, sandbox);
  await again();
  await world.podWhere("box", isRestored);
  expect(await dirsOf(world)).toEqual(dirs);
});

test("node hibernate: what was saved for a Sandbox goes with it", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  await putToSleep(world, sandbox);
  await world.client.delete(sandboxes, { namespace: "default", name: "box" });
  await expect.poll(() => world.fake.listSaved(), { timeout: 10_000 }).toEqual([]);
  await expect.poll(() => dirsOf(world), { timeout: 10_000 }).toEqual([]);
});

test("node hibernate: what was saved goes with a Sandbox that is deleted while its pod goes", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  await nameWish(world, sandbox, hibernate);
  await world.podWhere("box", isSaved);
  await nameWish(world, sandbox, { ...hibernate, savedAt: "2026-01-01T00:00:00Z", savedBytes: 1 << 20 });
  const key = { namespace: "default", name: "box" };
  await Promise.all([world.client.delete(pods, key), world.client.delete(sandboxes, key)]);
  await world.podGone("box");
  await expect.poll(() => world.fake.listSaved(), { timeout: 10_000 }).toEqual([]);
  await expect.poll(() => dirsOf(world), { timeout: 10_000 }).toEqual([]);
});

/** The fake host, with something done before a verb of it. */
function hostBefore(
  world: NodeWorld,
  verbs: { readonly [name in keyof Host]?: (request: never) => Promise<void> },
): Host {
  return new Proxy<Host>(world.fake, {
    get: (target, name) => {
      const verb: unknown = Reflect.get(target, name, target);
      if (typeof verb !== "function") return verb;
      const before = verbs[name as keyof Host] as ((request: unknown) => Promise<void>) | undefined;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        await before?.(args[0]);
        return Reflect.apply(verb, target, args) as unknown;
      };
    },
  });
}

test("node hibernate: the API says that memory is read before the guest may run", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  await putToSleep(world, sandbox);
  await world.agent?.stop();
  const seen: unknown[] = [];
  const runContainer = async ({ restoreFrom }: RunContainerRequest): Promise<void> => {
    if (restoreFrom !== undefined) seen.push(restoreOf(await world.getPod("box")));
  };
  await world.startAgent({ host: hostBefore(world, { runContainer }) });
  await createPodOf(world, sandbox);
  await world.podWhere("box", isRestored);
  expect(seen).toEqual([{ state: "restoring" }]);
});

test("node hibernate: a pod that is deleted before its memory is read is not restored, and the memory stays", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  await putToSleep(world, sandbox);
  await world.agent?.stop();
  const runs: unknown[] = [];
  let isDeleted = false;
  const host = hostBefore(world, {
    prepareRootfs: async () => {
      if (isDeleted) return;
      isDeleted = true;
      await world.client.delete(pods, { namespace: "default", name: "box" });
    },
    runContainer: async ({ restoreFrom }: RunContainerRequest) => void runs.push(restoreFrom),
  });
  await world.startAgent({ host });
  await createPodOf(world, sandbox);
  await world.podGone("box");
  expect(isDeleted).toBe(true);
  expect(runs).toEqual([]);
  expect((await world.fake.listSaved())[0]).not.toHaveProperty("unusable");
});

test("node hibernate: what was saved for a Sandbox that is deleted while the helper does not answer goes once it does", async () => {
  await using world = await NodeWorld.start();
  const sandbox = await start(world);
  await putToSleep(world, sandbox);
  await world.agent?.stop();
  let refused = 0;
  const discardSaved = async (): Promise<void> => {
    refused += 1;
    if (refused <= 3) throw new HostError("unavailable", "sandbox-host does not answer");
  };
  await world.startAgent({ host: hostBefore(world, { discardSaved }) });
  await world.client.delete(sandboxes, { namespace: "default", name: "box" });
  await expect.poll(() => world.fake.listSaved(), { timeout: 10_000 }).toEqual([]);
  await expect.poll(() => dirsOf(world), { timeout: 10_000 }).toEqual([]);
  await expect.poll(() => world.fake.listWritableLayers(), { timeout: 10_000 }).toEqual([]);
  expect(refused).toBe(4);
});
