import type { SleepWish } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { SavedState } from "../host/saved-state.ts";
import { planSleep, type SleepPlan, type SleepQuestion } from "./plan-sleep.ts";

const freeze: SleepWish = { id: "7", rung: "Freeze" };
const hibernate: SleepWish = { id: "8", rung: "Hibernate" };
const saved = { id: "box", memoryBytes: 4096, standstillMs: 40.4 } as SavedState;
const failure = { wish: "7", message: "a process does not stop", retryAtMs: 3000, tries: 1 };
const answer = (id: string, reason: string, rest: object = {}) => ({ answer: { id, reason, message: "", ...rest } });
const asSaved = answer("8", "Saved", { message: "in 40 ms", savedBytes: 4096 });

test.each<[string, Partial<SleepQuestion>, SleepPlan | object]>([
  ["no wish, never asked: says nothing", {}, {}],
  ["no wish, asked before: awake", { wasAsked: true }, answer("", "Awake")],
  ["freeze: stops it", { wish: freeze }, { step: { do: "freeze", wish: "7" } }],
  [
    "frozen: says so",
    { wish: freeze, state: { isFrozen: true, frozen: "x" } },
    answer("7", "Frozen", { message: "x" }),
  ],
  ["frozen and not wished: thaws", { state: { isFrozen: true } }, { step: { do: "thaw" } }],
  ["not all containers run: waits", { wish: freeze, isWhole: false }, answer("7", "Awake")],
  [
    "frozen with a container that ended: thaws",
    { wish: freeze, isWhole: false, state: { isFrozen: true } },
    { step: { do: "thaw" } },
  ],
  ["hibernate: saves", { wish: hibernate }, { step: { do: "save", wish: "8" } }],
  [
    "hibernate while frozen: saves",
    { wish: hibernate, state: { isFrozen: true } },
    { step: { do: "save", wish: "8" } },
  ],
  ["saved: says so", { wish: hibernate, state: { isFrozen: false, saved } }, asSaved],
  [
    "saved and its sandbox ended: still says so",
    { wish: hibernate, isWhole: false, state: { isFrozen: false, saved } },
    asSaved,
  ],
  ["saved and not wished: goes on", { state: { isFrozen: false, saved } }, { step: { do: "continue" } }],
  [
    "saved and only to be frozen: goes on first",
    { wish: freeze, state: { isFrozen: false, saved } },
    { step: { do: "continue" } },
  ],
  [
    "failed a moment ago: says why and waits",
    { wish: freeze, state: { isFrozen: false, failure }, nowMs: 2000 },
    { ...answer("7", "SleepFailed", { message: failure.message }), requeueAfterMs: 1000 },
  ],
  [
    "failed, and it is time: tries again",
    { wish: freeze, state: { isFrozen: false, failure }, nowMs: 3000 },
    { step: { do: "freeze", wish: "7" } },
  ],
  [
    "failed for another wish: tries at once",
    { wish: { ...freeze, id: "9" }, state: { isFrozen: false, failure } },
    { step: { do: "freeze", wish: "9" } },
  ],
])("planSleep: %s", (_title, question, expected) => {
  const base: SleepQuestion = { wish: undefined, state: { isFrozen: false }, isWhole: true, wasAsked: false, nowMs: 0 };
  expect(planSleep({ ...base, ...question })).toEqual(expected);
});
