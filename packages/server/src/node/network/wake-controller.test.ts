import { Readable } from "node:stream";
import type { Pod, Sandbox } from "@agent-sandbox/api";
import { type Client, createClient, FakeClock, type InformerHandler } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { silentLogger } from "../../telemetry/logger.ts";
import { HostError } from "../host/host-error.ts";
import type { HeldConnections } from "../host/network.ts";
import { followHeldConnections } from "./held-connections.ts";
import { isServing } from "./sandbox-addresses.ts";
import { wakeController } from "./wake-controller.ts";

const address = "10.200.0.77";
const second = 1_000;

const sandbox = { metadata: { namespace: "ns", name: "a" } } as Sandbox;
const readyPod: Pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "a", namespace: "ns" },
  spec: { containers: [] },
  status: { podIPs: [{ ip: address }], conditions: [{ type: "Ready", status: "True" }] },
};

/** A question to the host that is answered when a test says so. */
function openQuestion() {
  let answer: (held: HeldConnections) => void = () => undefined;
  return {
    ask: (after: number, signal?: AbortSignal): Promise<HeldConnections> => {
      const { promise, resolve, reject } = Promise.withResolvers<HeldConnections>();
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      answer = (held) => (held.count === after ? undefined : resolve(held));
      return promise;
    },
    answer: (held: HeldConnections) => answer(held),
  };
}

/** A cache of pods that shows what a test puts into it. */
function openPods() {
  const pods: Pod[] = [];
  let onPod: (pod: Pod) => void = () => undefined;
  return {
    byIndex: () => [...pods],
    addHandler: (handler: InformerHandler<Pod>) => {
      onPod = (pod) => handler.onAdd?.(pod, { initial: false });
      return () => undefined;
    },
    show: (pod: Pod) => {
      pods.push(pod);
      onPod(pod);
    },
  };
}

/** An API that answers every request with an empty object. */
function answering(onRequest: () => Promise<void>): Client {
  return createClient({
    request: async () => {
      await onRequest();
      return { status: 200, headers: {}, body: Readable.from([Buffer.from("{}")]) };
    },
    upgrade: () => Promise.reject(new Error("not used")),
    close: async () => undefined,
  });
}

/** A sleeping sandbox, an API and a host that count what is asked of them, on a clock that stands still until it is moved. */
function open() {
  const clock = new FakeClock();
  const startMs = clock.nowMs();
  const counts = { questions: 0, reports: 0, renewals: 0 };
  const verbsAt: string[] = [];
  const fails = { api: 0, verbs: 0, questions: 0 };
  const state = { isFalling: false };
  const watchedPods = openPods();
  const question = openQuestion();
  const client = answering(async () => {
    counts.reports += 1;
    if (fails.api-- > 0) throw new Error("no route to the API");
  });
  const away = (): HostError => new HostError("unavailable", "the helper is away");
  const verb = async (name: string): Promise<void> => {
    if (fails.verbs-- > 0) throw away();
    verbsAt.push(`${name} at ${(clock.nowMs() - startMs) / second} s`);
  };
  const host = {
    waitHeld: (request: { after: number }, signal?: AbortSignal) => {
      counts.questions += 1;
      if (fails.questions-- > 0) return Promise.reject(away());
      return question.ask(request.after, signal);
    },
    handOver: () => verb("handOver").then(() => ({ connections: 1 })),
    dropHeld: () => verb("dropHeld"),
  };
  const wake = wakeController({
    client,
    host,
    clock,
    random: () => 1,
    applyRules: () => verb("applyRules"),
    serves: (pod) => !state.isFalling && isServing(pod),
    sandboxes: { byIndex: () => [sandbox] },
    pods: watchedPods,
  });
  const stop = new AbortController();
  const following = followHeldConnections({
    host,
    clock,
    logger: silentLogger(),
    random: () => 1,
    onHeld: wake.held,
    renewRules: async () => void (counts.renewals += 1),
    signal: stop.signal,
  });
  const running = wake.run(stop.signal);
  return {
    clock,
    counts,
    fails,
    state,
    verbsAt,
    connect: async (count: number): Promise<void> => {
      question.answer({ connections: [{ address, port: 80, source: "10.200.0.5" }], count });
      await clock.settled();
    },
    becomeReady: async (): Promise<void> => {
      watchedPods.show(readyPod);
      await clock.settled();
    },
    [Symbol.asyncDispose]: async () => {
      stop.abort(new Error("the test is over"));
      await Promise.all([following, running]);
    },
  };
}

test("wakeController: a held connection is reported once, and the host is asked again only for the next one", async () => {
  await using world = open();
  await world.clock.settled();
  await world.connect(1);
  await world.clock.advance(59 * second);
  expect(world.counts).toEqual({ questions: 2, reports: 1, renewals: 0 });
  expect(world.verbsAt).toEqual([]);
});

test("wakeController: the Pod's readiness hands the connection over, without a moment of waiting", async () => {
  await using world = open();
  await world.clock.settled();
  await world.connect(1);
  await world.becomeReady();
  expect(world.verbsAt).toEqual(["applyRules at 0 s", "handOver at 0 s"]);
  await world.clock.advance(600 * second);
  expect(world.verbsAt).toHaveLength(2);
});

test("wakeController: a Pod that falls asleep and is still called Ready is woken, and gets its connections when it serves again", async () => {
  await using world = open();
  await world.clock.settled();
  world.state.isFalling = true;
  await world.becomeReady();
  await world.connect(1);
  expect([world.counts.reports, world.verbsAt]).toEqual([1, []]);
  world.state.isFalling = false;
  await world.becomeReady();
  expect(world.verbsAt).toEqual(["applyRules at 0 s", "handOver at 0 s"]);
});

test("wakeController: an API that does not take the report is asked again by backoff, and the host is not asked for that", async () => {
  await using world = open();
  await world.clock.settled();
  world.fails.api = 3;
  await world.connect(1);
  await world.clock.advance(5 + 10 + 20);
  expect(world.counts).toEqual({ questions: 2, reports: 4, renewals: 0 });
});

test("wakeController: a handover that failed is made again, although no other connection and no change of the Pod comes", async () => {
  await using world = open();
  await world.clock.settled();
  await world.connect(1);
  world.fails.verbs = 2;
  await world.becomeReady();
  expect(world.verbsAt).toEqual([]);
  await world.clock.advance(5 + 10);
  expect(world.verbsAt).toEqual(["applyRules at 0.015 s", "handOver at 0.015 s"]);
});

test("wakeController: a sandbox that does not come up in a minute: the connection is reset then, and a later one begins anew", async () => {
  await using world = open();
  await world.clock.settled();
  await world.connect(1);
  await world.clock.advance(60 * second);
  expect(world.verbsAt).toEqual(["dropHeld at 60 s"]);
  await world.connect(2);
  await world.clock.advance(60 * second);
  expect(world.verbsAt).toEqual(["dropHeld at 60 s", "dropHeld at 120 s"]);
  expect(world.counts.reports).toBe(2);
});

test("followHeldConnections: a helper that came back is told the rules and asked from zero, by backoff", async () => {
  await using world = open();
  await world.clock.settled();
  await world.connect(1);
  world.fails.questions = 2;
  await world.connect(2);
  expect(world.counts).toMatchObject({ questions: 3, renewals: 0 });
  await world.clock.advance(5);
  expect(world.counts).toMatchObject({ questions: 4, renewals: 1 });
  await world.clock.advance(10);
  expect(world.counts).toMatchObject({ questions: 5, renewals: 2 });
  // Its first connection has the number that the old helper's had.
  await world.becomeReady();
  const handedOver = world.verbsAt.length;
  await world.connect(1);
  expect(world.verbsAt.slice(handedOver)).toContain("handOver at 0.015 s");
});
