import type { Condition, SandboxWarmPoolStatus } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aCondition } from "../testing/builders.ts";
import { countsEveryMs, statusDelayMs } from "./status-pace.ts";

const told = (parts: Partial<SandboxWarmPoolStatus> = {}, ...conditions: Condition[]): SandboxWarmPoolStatus => ({
  replicas: 3,
  readyReplicas: 3,
  selector: "pool=a",
  observedGeneration: 1,
  conditions: [aCondition("Progressing", "True"), aCondition("Ready", "True"), ...conditions],
  ...parts,
});
const fewer = told({
  replicas: 2,
  readyReplicas: 1,
  conditions: [aCondition("Progressing", "True"), aCondition("Ready", "False")],
});

describe("statusDelayMs", () => {
  test("statusDelayMs: counts wait for the rest of their second, and no longer", () => {
    expect(statusDelayMs(told(), fewer, 0)).toBe(countsEveryMs);
    expect(statusDelayMs(told(), fewer, 400)).toBe(countsEveryMs - 400);
    expect(statusDelayMs(told(), fewer, countsEveryMs)).toBe(0);
    expect(statusDelayMs(told(), fewer, Number.POSITIVE_INFINITY)).toBe(0);
  });
  test.each<[string, SandboxWarmPoolStatus | undefined, SandboxWarmPoolStatus]>([
    ["the first status", undefined, told()],
    ["another generation", told(), { ...fewer, observedGeneration: 2 }],
    ["another selector", told(), { ...fewer, selector: "pool=b" }],
    ["a pool that stops progressing", told(), { ...fewer, conditions: [aCondition("Progressing", "False")] }],
    ["a template that is gone", told(), told({}, aCondition("TemplateResolved", "False"))],
  ])("statusDelayMs: %s is told at once", (_what, before, after) => {
    expect(statusDelayMs(before, after, 0)).toBe(0);
  });
  test("statusDelayMs: a clock that was set back silences nothing", () => {
    expect(statusDelayMs(told(), fewer, -3_600_000)).toBe(0);
  });
});
