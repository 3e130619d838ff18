import { expect, test } from "vitest";
import type { Pod, Sandbox } from "./index.ts";
import {
  asleepCondition,
  hasSaved,
  restoredCondition,
  restoreOf,
  sleepAnswer,
  sleepAnswerOf,
  sleepWishOf,
  standsStill,
} from "./sleep-answer.ts";

const podWith = (condition?: object): Pod =>
  ({ metadata: { name: "p", uid: "u1" }, status: { conditions: condition === undefined ? [] : [condition] } }) as Pod;

test.each(["Frozen", "Saved", "Awake", "SleepFailed"] as const)(
  "sleep answer: %s is read as it was written",
  (reason) => {
    const answer = { id: "1700000000123", reason, message: "12 MiB: written" };
    expect(sleepAnswerOf(podWith(sleepAnswer(answer)))).toEqual(answer);
  },
);

test("sleep answer: only what stands still is asleep", () => {
  const statusOf = (reason: "Frozen" | "Saved" | "Awake" | "SleepFailed") =>
    sleepAnswer({ id: "1", reason, message: "" }).status;
  expect([statusOf("Frozen"), statusOf("Saved"), statusOf("Awake"), statusOf("SleepFailed")]).toEqual([
    "True",
    "True",
    "False",
    "False",
  ]);
});

test("sleep answer: none, or one of another form, is none", () => {
  expect(sleepAnswerOf(podWith())).toBeUndefined();
  expect(
    sleepAnswerOf(podWith({ type: asleepCondition, status: "True", reason: "Dozing", message: "1: x" })),
  ).toBeUndefined();
  expect(sleepAnswerOf(podWith({ type: asleepCondition, status: "True", reason: "Saved", message: "x" }))?.id).toBe("");
});

test("sleep wish: is for the Pod that the Sandbox names", () => {
  const sleep = { id: "7", rung: "Freeze" } as const;
  const named = (podUID: string): Sandbox =>
    ({ metadata: { name: "s" }, spec: {}, status: { podUID, sleep } }) as Sandbox;
  expect(sleepWishOf(named("u1"), podWith())).toEqual(sleep);
  expect(sleepWishOf(named("u2"), podWith())).toBeUndefined();
});

test.each(["", "in 40 ms"])(
  "sleep answer: the size of what was saved is read as it was written, before %j",
  (message) => {
    const answer = { id: "7", reason: "Saved", message, savedBytes: 4096 } as const;
    expect(sleepAnswerOf(podWith(sleepAnswer(answer)))).toEqual(answer);
    expect(sleepAnswer(answer).message).toMatch(/^7: saved 4096 bytes/);
  },
);

test("sleep wish: once memory was saved it stands for the Pod that saved it alone", () => {
  const sleep = { id: "7", rung: "Hibernate", savedAt: "2026-01-01T00:00:00Z" } as const;
  const sandbox = { metadata: { name: "s" }, spec: {}, status: { podUID: "u1", sleep } } as Sandbox;
  const saved = podWith(sleepAnswer({ id: "7", reason: "Saved", message: "" }));
  expect(sleepWishOf(sandbox, saved)).toEqual(sleep);
  expect(sleepWishOf(sandbox, podWith())).toBeUndefined();
  expect(sleepWishOf(sandbox, podWith(), true)).toEqual(sleep);
  expect(hasSaved(saved, { id: "8" })).toBe(false);
});

test("standsStill: also by an answer to an earlier wish", () => {
  expect(standsStill(podWith(sleepAnswer({ id: "1", reason: "Frozen", message: "" })))).toBe(true);
  expect(standsStill(podWith(sleepAnswer({ id: "1", reason: "SleepFailed", message: "" })))).toBe(false);
  expect(standsStill(podWith())).toBe(false);
});

test.each([
  [undefined, undefined],
  [{ status: "True", reason: "Restored", message: "" }, { state: "restored" }],
  [{ status: "False", reason: "Restoring", message: "12 MiB left" }, { state: "restoring" }],
  [
    { status: "False", reason: "RestoreFailed", message: "why" },
    { state: "failed", message: "why" },
  ],
])("restoreOf: %j", (condition, expected) => {
  expect(restoreOf(podWith(condition && { type: restoredCondition, ...condition }))).toEqual(expected);
});
