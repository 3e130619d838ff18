import type { ContainerStatus, Pod } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planSandboxEvents } from "../sandbox-lifecycle/events.ts";
import { aPod, aSandbox } from "../testing/builders.ts";
import { limitConditions } from "./limit-conditions.ts";

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

test("limitConditions: a Sandbox that reached no limit has none", () => {
  expect(limitConditions(sandbox, aPod())).toEqual([]);
  expect(limitConditions(sandbox, undefined)).toEqual([]);
  expect(limitConditions(sandbox, podWith({ containerStatuses: [ended("Error", firstAt)] }))).toEqual([]);
});

test.each([
  ["OOMKilled", "MemoryLimit"],
  ["PidLimitReached", "PidLimit"],
])("limitConditions: a container that ended with %s, at the time when it did", (reason, conditionReason) => {
  const pod = podWith({ containerStatuses: [ended(reason, firstAt, "it reached a limit\nwords of the guest")] });
  expect(limitConditions(sandbox, pod)).toEqual([
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

test("limitConditions: what a guest may have written moves no cursor and has an end", () => {
  const pod = podWith({ containerStatuses: [ended("OOMKilled", firstAt, `\u001b[2J${"x".repeat(5000)}`)] });
  const [condition] = limitConditions(sandbox, pod);
  expect(condition?.message).toMatch(/^container main: \?\[2Jx{10,}$/);
  expect(condition?.message.length).toBeLessThan(400);
});

test.each([
  ["True", "StorageLimit"],
  ["False", "SpaceFree"],
] as const)("limitConditions: a disk that is or was full: %s", (status, reason) => {
  const own = { type: "agent-sandbox.dev/DiskFull", status, message: "m", lastTransitionTime: laterAt };
  const [condition] = limitConditions(sandbox, podWith({ conditions: [own] }));
  expect(condition).toMatchObject({ type: "DiskFull", status, reason, message: "m", lastTransitionTime: laterAt });
});

test("limitConditions: an evicted Pod", () => {
  const pod = podWith({ phase: "Failed", reason: "Evicted", message: "low on disk", startTime: firstAt });
  expect(limitConditions(sandbox, pod)).toMatchObject([{ type: "Evicted", status: "True", message: "low on disk" }]);
});

test("planSandboxEvents: a limit is told when it is reached, and again when it is reached again", () => {
  const statusAt = (at: string): { conditions: ReturnType<typeof limitConditions> } => ({
    conditions: limitConditions(sandbox, podWith({ containerStatuses: [ended("OOMKilled", at, "why")] })),
  });
  const after = (before: object | undefined, at: string): readonly string[] =>
    planSandboxEvents({ ...sandbox, status: { ...before } }, statusAt(at)).map(
      ({ reason, note }) => `${reason} ${note}`,
    );
  expect(after(undefined, firstAt)).toEqual(["OOMKilled container main: why"]);
  expect(after(statusAt(firstAt), firstAt)).toEqual([]);
  expect(after(statusAt(firstAt), laterAt)).toEqual(["OOMKilled container main: why"]);
});
