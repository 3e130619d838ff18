import type { Pod } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { partOf } from "../../../../kube/src/testing/part-of.ts";
import type { ContainerState } from "../host/container.ts";
import { planLimits } from "../limits.ts";
import { type LimitHit, limitHit } from "./limit-hit.ts";
import { runEnd } from "./note-end.ts";
import type { PodContext } from "./pod-context.ts";
import type { ContainerRecord, LimitCounts, PodRecord } from "./pod-record.ts";

const gibibyte = 2 ** 30;
const run = { name: "main", attempt: 0, crashes: 0, hostId: "h" } as ContainerRecord;
const finishedAt = "2026-01-01T00:00:00Z";
const oom: LimitHit = { reason: "OOMKilled", message: "too much" };

function stopped(exitCode?: number): ContainerState {
  const exit = { finishedAt, ...(exitCode !== undefined && { exitCode }) };
  return { id: "h", runtime: "runsc", sandboxId: "s", status: "stopped", pid: 0, startedAt: finishedAt, exit };
}

test.each<[string, number | undefined, LimitHit | undefined, { exitCode: number; reason: string }]>([
  ["killed at a limit, without a code", undefined, oom, { exitCode: 137, reason: "OOMKilled" }],
  ["killed at a limit, with the runtime's code", 128, oom, { exitCode: 137, reason: "OOMKilled" }],
  [
    "killed at a limit of processes",
    128,
    { reason: "PidLimitReached", message: "" },
    { exitCode: 137, reason: "PidLimitReached" },
  ],
  ["ended by itself, although a limit was hit", 3, oom, { exitCode: 3, reason: "Error" }],
  ["killed by a signal", 137, undefined, { exitCode: 137, reason: "Error" }],
  ["lost", undefined, undefined, { exitCode: 137, reason: "ContainerStatusUnknown" }],
])("runEnd: %s", (_name, exitCode, hit, end) => {
  expect(runEnd({ run, state: stopped(exitCode), hit, message: undefined, nowMs: 0 })).toMatchObject(end);
});

test("runEnd: the node's own words come before the guest's", () => {
  const { message } = runEnd({ run, state: stopped(), hit: oom, message: "I was fine", nowMs: 0 });
  expect(message).toBe("too much\nI was fine");
});

const machine = { memoryBytes: 8 * gibibyte, diskBytes: 100 * gibibyte, pidsMax: 10_000 };
const { limits } = planLimits({ reservedMemoryBytes: gibibyte, podPidsMax: 300 }, machine);
const pod = partOf<Pod>({ spec: { containers: [{ name: "main", resources: { limits: { memory: "150Mi" } } }] } });

function hit(now: LimitCounts, limitsBefore?: LimitCounts): Promise<LimitHit | undefined> {
  const context = partOf<PodContext>({
    host: { cgroupStats: async () => now },
    config: { limits },
    node: { memoryBytes: machine.memoryBytes },
  });
  const record = { cgroup: "c" } as PodRecord;
  const counted = limitsBefore === undefined ? run : { ...run, limitsBefore };
  return limitHit(context, pod, { record, run: counted }, new AbortController().signal);
}

test("limitHit: memory of its own, memory of all, processes, and nothing", async () => {
  expect((await hit({ oomKills: 1, memoryRefused: 9, pidsRefused: 0 }))?.message).toContain(
    "its memory limit of 150Mi",
  );
  expect((await hit({ oomKills: 1, memoryRefused: 0, pidsRefused: 0 }))?.message).toContain("together reached the 7Gi");
  expect(await hit({ oomKills: 0, memoryRefused: 9, pidsRefused: 1 })).toMatchObject({ reason: "PidLimitReached" });
  expect(await hit({ oomKills: 0, memoryRefused: 9, pidsRefused: 0 })).toBeUndefined();
});

test("limitHit: what an earlier run of the same pod did is not this one's", async () => {
  const before = { oomKills: 1, memoryRefused: 9, pidsRefused: 2 };
  expect(await hit(before, before)).toBeUndefined();
  expect(await hit({ ...before, oomKills: 2, memoryRefused: 12 }, before)).toMatchObject({ reason: "OOMKilled" });
});
