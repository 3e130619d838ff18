import { type Condition, type ContainerStatus, findCondition, type Pod, type Sandbox } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planSandboxEvents } from "../sandbox-lifecycle/events.ts";
import { aPod, aSandbox } from "../testing/builders.ts";
import { podConditions } from "./limit-conditions.ts";

const sandbox = aSandbox();
const firstAt = "2026-01-01T00:00:01Z";
const laterAt = "2026-01-01T00:00:09Z";

function ended(reason: string, at: string, message?: string): ContainerStatus {
  const terminated = { exitCode: 137, reason, finishedAt: at, ...(message !== undefined && { message }) };
  return { name: "main", image: "", imageID: "", ready: true, restartCount: 1, state: {}, lastState: { terminated } };
}

function podWith(status: Partial<NonNullable<Pod["status"]>>): Pod {
  const pod = aPod();
  return { ...pod, status: { ...pod.status, ...status } };
}

test("podConditions: a Sandbox that reached no limit has none", () => {
  expect(podConditions(sandbox, aPod())).toEqual([]);
  expect(podConditions(sandbox, undefined)).toEqual([]);
  const crashed = podConditions(sandbox, podWith({ containerStatuses: [ended("Error", firstAt)] }));
  expect(crashed.map(({ type }) => type)).toEqual(["ContainerEnded"]);
});

test.each([
  ["OOMKilled", "MemoryLimit"],
  ["PidLimitReached", "PidLimit"],
])("podConditions: a container that ended with %s, at the time when it did", (reason, conditionReason) => {
  const pod = podWith({ containerStatuses: [ended(reason, firstAt, "it reached a limit\nwords of the guest")] });
  expect(podConditions(sandbox, pod).filter(({ type }) => type === reason)).toEqual([
    {
      type: reason,
      status: "True",
      reason: conditionReason,
      message: "container main: it reached a limit",
      lastTransitionTime: firstAt,
      observedGeneration: sandbox.metadata.generation ?? 0,
    },
  ]);
});

test("podConditions: what a guest may have written moves no cursor and has an end", () => {
  const pod = podWith({ containerStatuses: [ended("OOMKilled", firstAt, `\u001b[2J${"x".repeat(5000)}`)] });
  const [condition] = podConditions(sandbox, pod);
  expect(condition?.message).toMatch(/^container main: \?\[2Jx{10,}$/);
  expect(condition?.message.length).toBeLessThan(400);
});

test.each([
  ["True", "StorageLimit"],
  ["False", "SpaceFree"],
] as const)("podConditions: a disk that is or was full: %s", (status, reason) => {
  const own = { type: "agent-sandbox.dev/DiskFull", status, message: "m", lastTransitionTime: laterAt };
  const [condition] = podConditions(sandbox, podWith({ conditions: [own] }));
  expect(condition).toMatchObject({ type: "DiskFull", status, reason, message: "m", lastTransitionTime: laterAt });
});

function crashing(message: string, exitCode = 3): ContainerStatus {
  const terminated = { exitCode, startedAt: firstAt, finishedAt: laterAt, message };
  const waiting = { reason: "CrashLoopBackOff", message: "back-off 10s" };
  return { ...ended("Error", laterAt), restartCount: 2, ready: false, state: { waiting }, lastState: { terminated } };
}

const crashLoopIn = (own: Sandbox, pod: Pod): Condition | undefined =>
  findCondition(podConditions(own, pod), "CrashLoop");

test("podConditions: S12 a container that ends again and again, with its exit code, its last words and what to add", () => {
  const condition = crashLoopIn(sandbox, podWith({ containerStatuses: [crashing("one\ntwo\n")] }));
  expect(condition).toEqual({
    type: "CrashLoop",
    status: "True",
    reason: "CrashLoopBackOff",
    message:
      'container main ended with exit code 3 after 8 s and was restarted 2 times; it printed last: one / two; its image\'s own program does not stay: give the container one that does, for example command: ["sleep", "infinity"]',
    lastTransitionTime: laterAt,
    observedGeneration: sandbox.metadata.generation ?? 0,
  });
  const own = aSandbox({ spec: { podTemplate: { spec: { containers: [{ name: "main", command: ["false"] }] } } } });
  const said = crashLoopIn(own, podWith({ containerStatuses: [crashing("", 1)] }));
  expect(said?.message).toContain("exit code 1 after 8 s and was restarted 2 times; it printed nothing; its command");
});

test("podConditions: S12 the last words are five lines and a kibibyte at most, and move no cursor", () => {
  const lines = Array.from({ length: 40 }, (_, index) => `\u001b[2Jline ${index} ${"x".repeat(300)}`).join("\n");
  const condition = crashLoopIn(sandbox, podWith({ containerStatuses: [crashing(lines)] }));
  expect(condition?.message.length).toBeLessThan(1024 + 300);
  expect(condition?.message).not.toMatch(/[^\x20-\x7e]/);
  expect(condition?.message.match(/line \d+/g)).toEqual(["line 37", "line 38", "line 39"]);
});

test("podConditions: S12 a deleted Pod is no crash loop any more", () => {
  const pod = podWith({ containerStatuses: [crashing("one")] });
  const leaving = { ...pod, metadata: { ...pod.metadata, deletionTimestamp: laterAt } };
  expect(crashLoopIn(sandbox, leaving)).toBeUndefined();
});

test("podConditions: an evicted Pod", () => {
  const pod = podWith({ phase: "Failed", reason: "Evicted", message: "low on disk", startTime: firstAt });
  expect(podConditions(sandbox, pod)).toMatchObject([{ type: "Evicted", status: "True", message: "low on disk" }]);
});

test("planSandboxEvents: a limit is told when it is reached, and again when it is reached again", () => {
  const statusAt = (at: string): { conditions: ReturnType<typeof podConditions> } => ({
    conditions: podConditions(sandbox, podWith({ containerStatuses: [ended("OOMKilled", at, "why")] })),
  });
  const after = (before: object | undefined, at: string): readonly string[] =>
    planSandboxEvents({ ...sandbox, status: { ...before } }, statusAt(at)).map(
      ({ reason, note }) => `${reason} ${note}`,
    );
  expect(after(undefined, firstAt)).toEqual(["OOMKilled container main: why"]);
  expect(after(statusAt(firstAt), firstAt)).toEqual([]);
  expect(after(statusAt(firstAt), laterAt)).toEqual(["OOMKilled container main: why"]);
});

test("podConditions: the last end of all containers, with the run that ended (S13)", () => {
  const run = { ...ended("Error", laterAt), name: "side" };
  const named = {
    ...run,
    lastState: {
      terminated: { ...run.lastState?.terminated, exitCode: 2, containerID: "agent-sandbox://a-0123456789ab" },
    },
  };
  const find = (containerStatuses: ContainerStatus[]) =>
    podConditions(sandbox, podWith({ containerStatuses })).find(({ type }) => type === "ContainerEnded");
  expect(find([ended("Completed", firstAt), named])).toMatchObject({
    status: "True",
    message: "container side ended with exit code 2 (Error, run 0123456789ab)",
    lastTransitionTime: laterAt,
  });
  expect(find([{ ...ended("Error", firstAt), lastState: {} }, named])).toBeUndefined();
});
