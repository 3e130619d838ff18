import { findCondition, type Pod, sleepAnswerOf } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { SavedState } from "../host/saved-state.ts";
import type { SleepState } from "../sleep/sleep-states.ts";
import type { ObservedPod } from "./observed-pod.ts";
import { planPod } from "./plan-pod.ts";
import type { ContainerRecord, PodRecord } from "./pod-record.ts";

const nowMs = Date.parse("2026-03-01T10:00:00Z");
const saved = { id: "box", memoryBytes: 1, standstillMs: 1 } as SavedState;
const running = {
  name: "main",
  attempt: 0,
  hostId: "h",
  startedAt: "2026-03-01T09:59:00Z",
  crashes: 0,
} as ContainerRecord;

const { startedAt: _startedAt, ...untimed } = running;

function observe(state: SleepState, more: Partial<ObservedPod> = {}, record: Partial<PodRecord> = {}): ObservedPod {
  const metadata = { name: "p", namespace: "default", uid: "u" };
  const pod = { metadata, spec: { containers: [{ name: "main", image: "host" }] } } as Pod;
  return {
    pod,
    record: { uid: "u", isPrepared: true, volumes: [], containers: { main: running }, ...record } as PodRecord,
    runtime: new Map([["h", { id: "h", runtime: "runsc", sandboxId: "h", status: "running", pid: 1, startedAt: "" }]]),
    images: new Map(),
    probes: new Map([["main", { isStarted: true, isReady: true, failure: { probe: "liveness" } }]]),
    daemons: new Set(["h"]),
    configObstacles: new Map(),
    sleep: { wish: { id: "7", rung: "Freeze" }, state },
    nodeAddress: "127.0.0.1",
    nowMs,
    ...more,
  };
}

const deleted = { metadata: { name: "p", uid: "u", deletionTimestamp: "2026-03-01T10:00:30Z" } };
const goes = { pod: { ...observe({ isFrozen: false }).pod, ...deleted } as Pod };
const lost = { runtime: new Map() };
const restoring = { saved: "box", state: "restoring", runs: {} } as const;
const hibernate = { sleep: { wish: { id: "7", rung: "Hibernate" }, state: { isFrozen: false, saved } } } as const;

test.each<[string, ObservedPod, string[]]>([
  ["a wish: freezes, and stops nothing for a probe that failed", observe({ isFrozen: false }), ["freeze"]],
  [
    "a wish, and the agent that started it was killed before it had written that down: freezes",
    observe({ isFrozen: false }, {}, { containers: { main: untimed } }),
    ["freeze"],
  ],
  ["frozen: a probe that failed before stops nothing", observe({ isFrozen: true }), []],
  ["frozen and its container ended: thaws before the end is noted", observe({ isFrozen: true }, lost), ["thaw"]],
  ["frozen and deleted: is killed without a signal before", observe({ isFrozen: true }, goes), ["kill-container"]],
  [
    "saved: nothing is started in it, whatever became of its sandbox",
    observe({ isFrozen: false }, { ...lost, ...hibernate }),
    [],
  ],
  [
    "saved and deleted: is taken away as it stands",
    observe({ isFrozen: false }, { ...goes, ...hibernate }),
    ["teardown"],
  ],
  [
    "hibernated, and the cache still shows it: its runs have not ended",
    observe({ isFrozen: false }, lost, { isHibernated: true, isPrepared: false }),
    [],
  ],
  [
    "hibernated, and the cache still shows it as deleted: goes from the API alone",
    observe({ isFrozen: false }, { ...lost, ...goes }, { isHibernated: true, isPrepared: false }),
    ["forget"],
  ],
  [
    "being restored: is not put to sleep",
    observe({ isFrozen: false }, { probes: new Map() }, { restore: restoring }),
    [],
  ],
  [
    "not restored: is taken away",
    observe({ isFrozen: false }, {}, { restore: { ...restoring, state: "failed" } }),
    ["stop-container"],
  ],
])("planPod asleep: %s", (_title, observed, expected) => {
  expect(planPod(observed).steps.map((step) => step.do)).toEqual(expected);
});

test("podStatus: a frozen pod is not Ready and its containers are", () => {
  const probes = new Map([["main", { isStarted: true, isReady: true }]]);
  const { status } = planPod(observe({ isFrozen: true, frozen: "why" }, { probes }));
  expect(findCondition(status.conditions, "Ready")).toMatchObject({ status: "False", reason: "Frozen" });
  expect(findCondition(status.conditions, "ContainersReady")).toMatchObject({ status: "True" });
  expect(status.containerStatuses).toMatchObject([{ ready: true }]);
  expect(sleepAnswerOf({ metadata: { name: "p" }, status } as Pod)).toEqual({
    id: "7",
    reason: "Frozen",
    message: "why",
  });
});
