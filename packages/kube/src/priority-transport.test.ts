import { expect, test } from "vitest";
import { prioritized } from "./priority-transport.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import type { KubeResponse, RequestPriority, Transport } from "./transport.ts";

/** A server that answers when the test releases it; requests name their priority as their path, too. */
function open(backgroundMax: number) {
  const underWay: { readonly path: string; readonly answer: () => void }[] = [];
  const inner: Transport = {
    request: ({ path }) =>
      new Promise<KubeResponse>((resolve) => {
        const answer = (): void => {
          underWay.splice(underWay.indexOf(entry), 1);
          resolve({ status: 200, headers: {}, body: (async function* () {})() });
        };
        const entry = { path, answer };
        underWay.push(entry);
      }),
    upgrade: () => Promise.reject(new Error("not used")),
    close: async () => undefined,
  };
  const clock = new FakeClock();
  const transport = prioritized(inner, { backgroundMax, backgroundQuietMax: 5, clock });
  const send = (path: RequestPriority, signal?: AbortSignal): Promise<KubeResponse> =>
    transport.request({ method: "GET", path, priority: path, ...(signal !== undefined && { signal }) });
  const answer = async (path: RequestPriority): Promise<void> => {
    underWay.find((entry) => entry.path === path)?.answer();
    await clock.settled();
  };
  return {
    send,
    answer,
    clock,
    count: (path: RequestPriority) => underWay.filter((each) => each.path === path).length,
  };
}

test("prioritized: nothing urgent under way: background requests are bounded only by what the next urgent one may meet", async () => {
  const server = open(1);
  for (let sent = 0; sent < 9; sent += 1) void server.send("background");
  await server.clock.settled();
  expect(server.count("background")).toBe(5);
});

test("prioritized: an urgent request under way: background ones pass one by one", async () => {
  const server = open(1);
  void server.send("urgent");
  for (let sent = 0; sent < 3; sent += 1) void server.send("background");
  void server.send("stream");
  void server.send("urgent");
  await server.clock.settled();
  expect([server.count("urgent"), server.count("stream"), server.count("background")]).toEqual([2, 1, 1]);
  await server.answer("background");
  expect(server.count("background")).toBe(1);
});

test("prioritized: the last urgent request is answered: the background waits for its successor, then goes on", async () => {
  const server = open(1);
  void server.send("urgent");
  for (let sent = 0; sent < 4; sent += 1) void server.send("background");
  await server.answer("urgent");
  expect(server.count("background")).toBe(1);
  await server.clock.advance(1_000);
  expect(server.count("background")).toBe(4);
});

test("prioritized: a waiting request is aborted: it rejects with the reason and takes no turn", async () => {
  const server = open(1);
  void server.send("urgent");
  void server.send("background");
  const stop = new AbortController();
  const aborted = server.send("background", stop.signal);
  void server.send("background");
  await server.clock.settled();
  stop.abort(new Error("no longer wanted"));
  await expect(aborted).rejects.toThrow("no longer wanted");
  await server.answer("background");
  expect(server.count("background")).toBe(1);
});
