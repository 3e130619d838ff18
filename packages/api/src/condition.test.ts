import { expect, test } from "vitest";
import { findCondition, isConditionTrue, upsertCondition } from "./condition.ts";
import type { Condition } from "./meta.ts";

const early = "2026-01-01T00:00:00Z";
const laterMs = Date.UTC(2026, 0, 1, 1, 0, 0, 789);
const later = "2026-01-01T01:00:00Z";
const ready = (rest: Partial<Condition> = {}): Condition => ({
  type: "Ready",
  status: "False",
  reason: "Waiting",
  message: "m",
  lastTransitionTime: early,
  ...rest,
});

test("upsertCondition: a new type goes to the end with the time of the clock in whole seconds", () => {
  const after = upsertCondition([ready()], { type: "Other", status: "True", reason: "R", message: "" }, laterMs);
  expect(after.map((condition) => [condition.type, condition.lastTransitionTime])).toEqual([
    ["Ready", early],
    ["Other", later],
  ]);
});

test("upsertCondition: reason and message alone keep the transition time", () => {
  const [after] = upsertCondition([ready()], { ...ready({ reason: "Else" }), lastTransitionTime: later }, laterMs);
  expect(after).toEqual(ready({ reason: "Else" }));
});

test("upsertCondition: a change of status takes the given time, else the clock's", () => {
  const { lastTransitionTime: _, ...input } = ready({ status: "True" });
  expect(upsertCondition([ready()], input, laterMs)[0]?.lastTransitionTime).toBe(later);
  const given = { ...input, lastTransitionTime: "2025-01-01T00:00:00Z" };
  expect(upsertCondition([ready()], given, laterMs)[0]?.lastTransitionTime).toBe("2025-01-01T00:00:00Z");
});

test("upsertCondition: the same list comes back when nothing changes", () => {
  const conditions = [ready({ observedGeneration: 2 })];
  expect(upsertCondition(conditions, ready({ observedGeneration: 2 }), laterMs)).toBe(conditions);
  expect(upsertCondition(conditions, ready({ observedGeneration: 3 }), laterMs)[0]?.observedGeneration).toBe(3);
});

test("findCondition: finds by type and tells truth only of True", () => {
  expect(findCondition(undefined, "Ready")).toBeUndefined();
  expect(isConditionTrue([ready()], "Ready")).toBe(false);
  expect(isConditionTrue([ready({ status: "True" })], "Ready")).toBe(true);
});
