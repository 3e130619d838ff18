import { expect, test } from "vitest";
import type { Pod } from "./builtin.gen.ts";
import type { MemoryUse, Sandbox, SandboxStatus } from "./kinds.gen.ts";
import { isNotableChange, memoryUse, memoryUseOf, sandboxCost } from "./memory-use.ts";
import type { Condition } from "./meta.ts";

const mib = 1024 * 1024;
const podThatSays = (use: MemoryUse): Pod => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "p" },
  spec: { containers: [] },
  status: { conditions: [memoryUse(use)] },
});

test.each<MemoryUse>([
  { residentBytes: 0 },
  { residentBytes: 7 * mib, sharedBytes: 0 },
  { residentBytes: 7, beforeSleepBytes: 2 ** 40 },
  { residentBytes: 1, sharedBytes: 2, beforeSleepBytes: 3 },
])("memoryUseOf: reads what memoryUse says: %j", (use) => {
  expect(memoryUseOf(podThatSays(use))).toEqual(use);
});

test("memoryUseOf: what no node of ours has said is nothing", () => {
  const pod = podThatSays({ residentBytes: 1 });
  expect(memoryUseOf({ ...pod, status: {} })).toBeUndefined();
  for (const message of ["", "many bytes resident", "12 bytes residents", "-1 bytes resident"]) {
    const condition = { ...memoryUse({ residentBytes: 1 }), message };
    expect(memoryUseOf({ ...pod, status: { conditions: [condition] } }), message).toBeUndefined();
  }
});

test.each([
  [100 * mib, 109 * mib, false],
  [100 * mib, 110 * mib, true],
  [100 * mib, 90 * mib, true],
  [2 * mib, 2.9 * mib, false],
  [2 * mib, 3 * mib, true],
  [0, mib, true],
  [mib, 0, true],
])("isNotableChange: from %d to %d bytes: %s", (before, after, expected) => {
  expect(isNotableChange(before, after)).toBe(expected);
});

const since = "2026-01-01T00:00:00Z";
const condition = (type: string, status: "True" | "False", reason: string): Condition => ({
  type,
  status,
  reason,
  message: "",
  lastTransitionTime: since,
  observedGeneration: 1,
});
const sandbox = (status: SandboxStatus): Sandbox => ({
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { name: "s", generation: 1 },
  spec: { podTemplate: { spec: { containers: [] } } },
  status,
});
const asleep = (reason: string, rest: SandboxStatus) =>
  sandbox({
    conditions: [condition("Ready", "False", "SandboxSuspended"), condition("Suspended", "True", reason)],
    ...rest,
  });

test("sandboxCost: awake: what is resident, and nothing freed", () => {
  const memory = { residentBytes: 60, sharedBytes: 5 };
  expect(sandboxCost(sandbox({ conditions: [condition("Ready", "True", "")], memory }))).toEqual({
    phase: "ready",
    residentBytes: 60,
    sharedBytes: 5,
    savedBytes: undefined,
    asleepSinceMs: undefined,
    freedBytes: 0,
  });
});

test.each([
  ["PodFrozen", "frozen", { residentBytes: 20, sharedBytes: 5, beforeSleepBytes: 60 }, undefined, 40],
  ["PodFrozen", "frozen", { residentBytes: 70, beforeSleepBytes: 60 }, undefined, 0],
  ["PodHibernated", "hibernated", { residentBytes: 0, beforeSleepBytes: 60 }, 44, 60],
  ["PodTerminated", "suspended", { residentBytes: 0, beforeSleepBytes: 60 }, undefined, 60],
] as const)("sandboxCost: %s: is %s and has freed %j", (reason, phase, memory, savedBytes, freedBytes) => {
  const sleep = savedBytes === undefined ? {} : { sleep: { id: "1", rung: "Hibernate", savedBytes } as const };
  expect(sandboxCost(asleep(reason, { memory, ...sleep }))).toMatchObject({
    phase,
    freedBytes,
    savedBytes,
    residentBytes: memory.residentBytes,
    asleepSinceMs: Date.parse(since),
  });
});

test("sandboxCost: one that nothing was said of has freed nothing that is known", () => {
  expect(sandboxCost(asleep("PodTerminated", {}))).toMatchObject({ residentBytes: undefined, freedBytes: 0 });
});
