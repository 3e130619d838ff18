import type { Condition, SandboxWarmPoolStatus } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aCondition } from "../testing/builders.ts";
import { countsEveryMs, tellAfterMs } from "./status-pace.ts";

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

describe("tellAfterMs", () => {
  test("tellAfterMs: counts wait for the rest of their second, and no longer", () => {
    expect(tellAfterMs(told(), fewer, 0)).toBe(countsEveryMs);
    expect(tellAfterMs(told(), fewer, 400)).toBe(countsEveryMs - 400);
    expect(tellAfterMs(told(), fewer, countsEveryMs)).toBe(0);
    expect(tellAfterMs(told(), fewer, Number.POSITIVE_INFINITY)).toBe(0);
  });
  test.each<[string, SandboxWarmPoolStatus | undefined, SandboxWarmPoolStatus]>([
    ["the first status", undefined, told()],
    ["another generation", told(), { ...fewer, observedGeneration: 2 }],
    ["another selector", told(), { ...fewer, selector: "pool=b" }],
    ["a pool that stops progressing", told(), { ...fewer, conditions: [aCondition("Progressing", "False")] }],
    ["a template that is gone", told(), told({}, aCondition("TemplateResolved", "False"))],
  ])("tellAfterMs: %s is told at once", (_what, before, after) => {
    expect(tellAfterMs(before, after, 0)).toBe(0);
  });
  test("tellAfterMs: a clock that was set back silences nothing", () => {
    expect(tellAfterMs(told(), fewer, -3_600_000)).toBe(0);
  });
});
