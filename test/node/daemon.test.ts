import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunContainerRequest } from "../../packages/server/src/node/host/container.ts";
import type { ProbeDialers } from "../../packages/server/src/node/probes/probe-check.ts";
import { isReady, NodeWorld } from "./node-world.ts";

let world: NodeWorld;
let isAnswering = false;

const http: ProbeDialers["http"] = () => Promise.resolve({ isOk: isAnswering, message: "" });
const containers = [{ name: "main", image: "host", command: ["sleep", "infinity"] }];

beforeAll(async () => {
  world = await NodeWorld.start();
  await world.agent?.stop();
  await world.startAgent({ dialers: { http } });
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

test("daemon: a sandbox is ready when its daemon answers, not when it runs", async () => {
  await world.createPod("silent", { containers });
  const silent = await world.podWhere("silent", ({ status }) => status?.phase === "Running");
  expect(isReady(silent)).toBe(false);
  expect(silent.status?.containerStatuses?.[0]).toMatchObject({ ready: false, state: { running: {} } });
  isAnswering = true;
  const ready = await world.podWhere("silent", isReady);
  expect(ready.status?.containerStatuses?.[0]?.restartCount).toBe(0);
});

test("daemon: one that answered stays ready for an agent that returns", async () => {
  isAnswering = true;
  await world.createPod("kept", { containers });
  await world.podWhere("kept", isReady);
  isAnswering = false;
  await world.agent?.stop();
  await world.startAgent({ dialers: { http } });
  await world.agent?.idle();
  expect(isReady(await world.getPod("kept"))).toBe(true);
});

test("daemon: a sandbox without one is ready as soon as it runs", async () => {
  isAnswering = false;
  await world.createPod("bare", { containers }, { "agent-sandbox.dev/sandboxd": "disabled" });
  expect(isReady(await world.podWhere("bare", isReady))).toBe(true);
});

test("daemon: one that said it serves is ready once its address leads to it, and not before", async () => {
  isAnswering = false;
  let isReachable = false;
  const tcp: ProbeDialers["tcp"] = () =>
    isReachable ? Promise.resolve({ isOk: true, message: "" }) : Promise.reject(new Error("no route to host"));
  await world.agent?.stop();
  const host = new Proxy(world.fake, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name, target);
      if (name !== "runContainer") return typeof found === "function" ? (found.bind(target) as unknown) : found;
      return async (request: RunContainerRequest) => ({ ...(await target.runContainer(request)), serving: true });
    },
  });
  await world.startAgent({ host, dialers: { http, tcp } });
  await world.createPod("told", { containers });
  const { status } = await world.podWhere("told", ({ status }) => status?.phase === "Running");
  expect(status?.containerStatuses?.[0]).toMatchObject({ ready: false, state: { running: {} } });
  isReachable = true;
  expect(isReady(await world.podWhere("told", isReady))).toBe(true);
});
