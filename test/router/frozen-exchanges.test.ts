import http from "node:http";
import { annotationKeys, formatTimestampMs, sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call } from "./http-call.ts";
import { RouterWorld, until } from "./router-world.ts";
import { openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter & { metrics: { metrics(): Promise<string> } };
let port: number;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router();
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
});
afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const lastTransitionTime = "2026-01-01T00:00:01Z";
/** None of those that the daemon answers for. */
const programPort = 8123;
const to = (name: string) => ({ headers: { "X-Sandbox-ID": name, "X-Sandbox-Port": String(programPort) } });

/** A sandbox of which the test is the controller; it answers once it has been woken. */
async function openSandbox(
  name: string,
  wakePolicy: "OnTraffic" | "Never",
  ready: "True" | "False" = "True",
  listens = true,
) {
  const reason = ready === "True" ? "DependenciesReady" : "DependenciesNotReady";
  const address = await world.sandbox(router, name, { ready: { status: ready, reason } });
  const woken = Promise.withResolvers<void>();
  const listen = (): Promise<unknown> =>
    openUpstream(world, { address, port: programPort }, (request, response) => {
      request.resume();
      void woken.promise.then(() => response.end("after"));
    });
  if (listens) await listen();
  const at = { namespace: "default", name };
  const write = async (sleep: object | null, reason: string): Promise<void> => {
    const ready =
      sleep === null
        ? { status: "True", reason: "DependenciesReady" }
        : { status: "False", reason: "SandboxSuspended" };
    const conditions = [
      { type: "Ready", message: "", lastTransitionTime, ...ready },
      { type: "Suspended", status: reason === "PodFrozen" ? "True" : "False", reason, message: "", lastTransitionTime },
    ];
    const patch = { type: "merge", body: { status: { conditions, sleep } } } as const;
    await world.admin.patch(sandboxes, at, patch, { subresource: "status" });
  };
  return {
    suspend: async () => {
      const stamp = { [annotationKeys.suspendedAt]: formatTimestampMs(Date.now()) };
      const body = { metadata: { annotations: stamp }, spec: { operatingMode: "Suspended", wakePolicy } };
      await world.admin.patch(sandboxes, at, { type: "merge", body });
      await write({ id: String(Date.now()), rung: "Freeze" }, "PodFreezing");
    },
    freeze: async () => {
      const { status } = await world.admin.get(sandboxes, at);
      await write(status?.sleep ?? null, "PodFrozen");
    },
    withdraw: async () => {
      const conditions = [
        { type: "Ready", status: "False", reason: "DependenciesNotReady", message: "", lastTransitionTime },
      ];
      const patch = { type: "merge", body: { status: { conditions, sleep: null } } } as const;
      await world.admin.patch(sandboxes, at, patch, { subresource: "status" });
    },
    answer: () => woken.resolve(),
    listen,
    wake: async () => {
      woken.resolve();
      await write(null, "NotSuspended");
    },
    reported: async () => (await world.admin.get(sandboxes, at)).metadata.annotations?.[annotationKeys.lastActivityAt],
  };
}

async function underWay(count: number): Promise<void> {
  await until(async () => new RegExp(`inflight_requests ${count}\n`).test(await router.metrics.metrics()));
}

test("router: a call that is open to a sandbox when its user has frozen it is traffic that wakes it", async () => {
  const { suspend, freeze, wake, reported } = await openSandbox("frozen", "OnTraffic");
  const posted = call(port, "/", { ...to("frozen"), method: "POST", body: "x" });
  await underWay(1);
  await suspend();
  // One that ends by itself before the processes stand still lets the sandbox sleep.
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(await reported()).toBeUndefined();
  const beforeMs = Date.now();
  await freeze();
  await until(async () => (await reported()) !== undefined);
  expect(Date.parse((await reported()) ?? "")).toBeGreaterThanOrEqual(beforeMs);
  await wake();
  expect(await posted).toMatchObject({ status: 200, text: "after" });
});

test("router: a frozen sandbox to which nothing is open is not woken", async () => {
  const { suspend, freeze, reported } = await openSandbox("alone", "OnTraffic");
  await suspend();
  await freeze();
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(await reported()).toBeUndefined();
});

test("router: a caller who left before the sandbox froze does not wake it", async () => {
  const { suspend, freeze, reported } = await openSandbox("left", "OnTraffic");
  const agent = new http.Agent();
  const left = call(port, "/", { ...to("left"), agent }).catch((error: unknown) => String(error));
  await underWay(1);
  await suspend();
  await until(() => router.table.get("default", "left")?.state.kind === "asleep");
  agent.destroy();
  await left;
  await underWay(0);
  await freeze();
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(await reported()).toBeUndefined();
});

test("router: a frozen sandbox is dialled when its wake is certain, not only when its status says that it is Ready", async () => {
  const { suspend, freeze, withdraw, answer } = await openSandbox("early", "OnTraffic");
  answer();
  await suspend();
  await freeze();
  const first = await call(port, "/", { ...to("early"), method: "POST", body: "x" });
  expect(first).toMatchObject({ status: 200, text: "after" });
  await withdraw();
  await until(() => router.table.get("default", "early")?.keepsPod === false);
  const second = await call(port, "/", to("early"));
  expect(second).toMatchObject({ status: 200, text: "after" });
});

test("router: a sandbox that was not seen to serve before it froze is dialled only when it is Ready", async () => {
  const { suspend, freeze, wake, reported } = await openSandbox("unseen", "OnTraffic", "False");
  await suspend();
  await freeze();
  const held = call(port, "/", to("unseen"));
  await until(async () => (await reported()) !== undefined);
  const first = await Promise.race([held, new Promise((resolve) => setTimeout(resolve, 500, "held"))]);
  expect(first).toBe("held");
  await wake();
  expect(await held).toMatchObject({ status: 200 });
});

test("router: who dialled a waking sandbox in vain waits until it is Ready", async () => {
  const { suspend, freeze, wake, reported, listen } = await openSandbox("vain", "OnTraffic", "True", false);
  await suspend();
  await freeze();
  const held = call(port, "/", to("vain"));
  await until(async () => (await reported()) !== undefined);
  const first = await Promise.race([held, new Promise((resolve) => setTimeout(resolve, 1_000, "held"))]);
  expect(first).toBe("held");
  await listen();
  await wake();
  expect(await held).toMatchObject({ status: 200, text: "after" });
});

test.each(["GET", "POST"])(
  "router: a %s that is open to a sandbox that its owner freezes for good is answered with the reason",
  async (method) => {
    const name = `held-${method.toLowerCase()}`;
    const { suspend, freeze, reported } = await openSandbox(name, "Never");
    const asked = call(port, "/", { ...to(name), method, ...(method === "POST" && { body: "x" }) });
    await underWay(1);
    await suspend();
    const startMs = performance.now();
    await freeze();
    const answer = await asked;
    expect([answer.status, answer.text]).toEqual([409, expect.stringMatching(/suspended by its owner.*resume/)]);
    expect(performance.now() - startMs).toBeLessThan(2_000);
    expect(await reported()).toBeUndefined();
  },
);
