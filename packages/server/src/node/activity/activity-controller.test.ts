import { Readable } from "node:stream";
import { annotationKeys, type Pod, type Sandbox } from "@agent-sandbox/api";
import { createClient, FakeClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { activityController } from "./activity-controller.ts";
import { OpenStreams } from "./open-streams.ts";

const second = 1_000;

const owner = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name: "a", uid: "s1", controller: true };
const pod: Pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "a", namespace: "ns", uid: "p1", ownerReferences: [owner] },
  spec: { containers: [] },
  status: { podIP: "10.0.0.1" },
};

function sleeper(bornMs: number): Sandbox {
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "a", namespace: "ns", uid: "s1", creationTimestamp: new Date(bornMs).toISOString() },
    spec: { podTemplate: { spec: { containers: [] } }, autoSuspension: { inactivityTimeoutSeconds: 60 } },
    status: { podUID: "p1" },
  } as Sandbox;
}

/** One sandbox that falls asleep after a minute, with its pod, on a clock that stands still until it is moved. */
function open(ask: () => Promise<{ isInUse: boolean; lastUseMs: number } | undefined>, first = sleeper) {
  const clock = new FakeClock();
  const bornMs = clock.nowMs();
  let sandbox = first(bornMs);
  const streams = new OpenStreams(() => clock.nowMs());
  let told: (old: Sandbox, sandbox: Sandbox) => void = () => undefined;
  const reportsAt: number[] = [];
  const asksAt: number[] = [];
  const at = (): number => (clock.nowMs() - bornMs) / second;
  const client = createClient({
    request: async ({ body }) => {
      reportsAt.push(at());
      const { metadata } = JSON.parse(String(body)) as Sandbox;
      const old = sandbox;
      sandbox = { ...sandbox, metadata: { ...sandbox.metadata, annotations: { ...metadata.annotations } } };
      told(old, sandbox);
      return { status: 200, headers: {}, body: Readable.from([Buffer.from(JSON.stringify(sandbox))]) };
    },
    upgrade: () => Promise.reject(new Error("not used")),
    close: async () => undefined,
  });
  const stop = new AbortController();
  const running = activityController({
    client,
    clock,
    pods: {
      get: () => pod,
      byIndex: () => [pod],
      addHandler: (handler) => {
        handler.onAdd?.(pod, { initial: true });
        return () => undefined;
      },
    },
    sandboxes: {
      get: () => sandbox,
      addHandler: (handler) => {
        told = (old, now) => handler.onUpdate?.(old, now);
        return () => undefined;
      },
    },
    streams,
    ask: () => {
      asksAt.push(at());
      return ask();
    },
    isDialled: async () => false,
  }).run(stop.signal);
  return {
    clock,
    streams,
    asksAt,
    reportsAt,
    reported: () => sandbox.metadata.annotations?.[annotationKeys.lastActivityAt],
    [Symbol.asyncDispose]: async () => {
      stop.abort(new Error("the test is over"));
      await running;
    },
  };
}

test("activityController: looks when a look is due and at no other time, until the sandbox falls asleep", async () => {
  await using idle = open(async () => ({ isInUse: false, lastUseMs: 0 }));
  await idle.clock.advance(600 * second);
  expect(idle.asksAt.slice(0, 4)).toEqual([30, 45, 52.5, 56.25]);
  expect(idle.asksAt.every((seconds) => seconds < 60)).toBe(true);
  expect(idle.reportsAt).toEqual([]);
  expect(idle.clock.timers).toBe(0);
});

test("activityController: what is in use is reported each time, and the report moves the next look", async () => {
  await using busy = open(async () => ({ isInUse: true, lastUseMs: 0 }));
  await busy.clock.advance(100 * second);
  expect([busy.asksAt, busy.reportsAt]).toEqual([
    [30, 60, 90],
    [30, 60, 90],
  ]);
  expect(busy.reported()).toBe("2026-01-01T00:01:30Z");
});

test("activityController: a daemon that never answers does not keep the controller from stopping", async () => {
  const silent = open(() => new Promise(() => undefined));
  await silent.clock.advance(31 * second);
  expect(silent.asksAt).toEqual([30]);
  await silent[Symbol.asyncDispose]();
});

/** One that its user has frozen, a moment after it was made. */
function frozen(bornMs: number, wakePolicy: "OnTraffic" | "Never"): Sandbox {
  const born = sleeper(bornMs);
  const condition = (type: string, status: "True" | "False", reason: string) => ({
    type,
    status,
    reason,
    message: "",
    lastTransitionTime: "2026-01-01T00:00:01Z",
  });
  const conditions = [condition("Ready", "False", "SandboxSuspended"), condition("Suspended", "True", "PodFrozen")];
  const sleep = { id: String(bornMs), rung: "Freeze" as const };
  const spec = { ...born.spec, operatingMode: "Suspended" as const, wakePolicy };
  return { ...born, spec, status: { ...born.status, sleep, conditions } };
}

const nobody = async (): Promise<undefined> => undefined;

test("activityController: a command that is open to a sandbox when it freezes is traffic, reported until it is heard", async () => {
  await using used = open(nobody, (bornMs) => frozen(bornMs, "OnTraffic"));
  const cuts: string[] = [];
  used.streams.begin("ns/a", (why) => cuts.push(why));
  await used.clock.advance(5 * second);
  expect([used.reportsAt, cuts]).toEqual([[0, 2, 4], []]);
});

test("activityController: a frozen sandbox to which no command is open sleeps on", async () => {
  await using idle = open(nobody, (bornMs) => frozen(bornMs, "OnTraffic"));
  await idle.clock.advance(5 * second);
  expect([idle.reportsAt, idle.asksAt]).toEqual([[], []]);
});

test("activityController: a command that is open to a sandbox that its owner freezes for good is ended with the reason", async () => {
  await using held = open(nobody, (bornMs) => frozen(bornMs, "Never"));
  const cuts: string[] = [];
  held.streams.begin("ns/a", (why) => cuts.push(why));
  await held.clock.advance(5 * second);
  expect(cuts).toEqual(["sandbox ns/a was suspended by its owner; resume it with agent-sandbox resume a"]);
  expect(held.reportsAt).toEqual([]);
});
