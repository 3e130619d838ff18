import { sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call } from "./http-call.ts";
import { RouterWorld, until } from "./router-world.ts";
import { openRawUpstream } from "./upstream.ts";

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

const to = (name: string) => ({ headers: { "X-Sandbox-ID": name } });

/** A sandbox that says `before`, or nothing, to what it has open before its memory is saved, and answers every connection after that. */
async function openSleeper(
  name: string,
  before = "",
): Promise<Record<"askToSleep" | "save" | "wake", () => Promise<void>>> {
  const address = await world.sandbox(router, name);
  let isSaved = false;
  await openRawUpstream(world, { address, port: 8888 }, (socket) => {
    const answers = isSaved;
    socket.on("data", () => socket.write(answers ? "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nafter" : before));
    socket.on("error", () => undefined);
  });
  const write = async (status: "True" | "False", sleep: object | null): Promise<void> => {
    const at = "2026-01-01T00:00:01Z";
    const reason = status === "True" ? "DependenciesReady" : "DependenciesNotReady";
    const conditions = [{ type: "Ready", status, reason, message: "", lastTransitionTime: at }];
    const patch = { type: "merge", body: { status: { conditions, sleep } } } as const;
    await world.admin.patch(sandboxes, { namespace: "default", name }, patch, { subresource: "status" });
  };
  const wish = { id: "1", rung: "Hibernate" };
  const save = async (): Promise<void> => {
    isSaved = true;
    await write("False", { ...wish, savedAt: "2026-01-01T00:00:00Z" });
  };
  return { askToSleep: () => write("False", wish), save, wake: () => write("True", null) };
}

async function underWay(count: number): Promise<void> {
  await until(async () => new RegExp(`inflight_requests ${count}\n`).test(await router.metrics.metrics()));
}

test("router: a call that memory was saved under is made again where it may be, and told at once where it may not", async () => {
  const { save, wake } = await openSleeper("saved");
  const repeatable = call(port, "/", to("saved"));
  const other = call(port, "/", { ...to("saved"), method: "POST", body: "x" });
  await underWay(2);
  const startMs = performance.now();
  await save();
  expect(await other).toMatchObject({ status: 502, text: expect.stringContaining("fell asleep") });
  expect(performance.now() - startMs).toBeLessThan(2_000);
  await underWay(1);
  await wake();
  expect(await repeatable).toMatchObject({ status: 200, text: "after" });
});

test("router: the head of an answer alone is not the answer: a call whose body memory was saved under is made again", async () => {
  const { save, wake } = await openSleeper("half", "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n");
  const repeatable = call(port, "/", to("half"));
  const other = call(port, "/", { ...to("half"), method: "POST", body: "x" });
  await underWay(2);
  await save();
  expect(await other).toMatchObject({ status: 502, text: expect.stringContaining("fell asleep") });
  await wake();
  expect(await repeatable).toMatchObject({ status: 200, text: "after" });
});

test("router: what is open to a sandbox that is only asked to sleep stays open", async () => {
  const { askToSleep, save, wake } = await openSleeper("asked");
  const asked = call(port, "/", to("asked"));
  await underWay(1);
  await askToSleep();
  const first = await Promise.race([asked, new Promise((resolve) => setTimeout(resolve, 500, "still open"))]);
  expect(first).toBe("still open");
  await save();
  await wake();
  expect(await asked).toMatchObject({ status: 200 });
});
