import type { Pod, Sandbox, SandboxSnapshot } from "@agent-sandbox/api";
import { annotationKeys, podSnapshotAnnotations, restoredCondition } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import type { EffectiveMode } from "../sandbox-suspension/effective-mode.ts";
import { aCondition, aPod, aSandbox, aSnapshot, at, epochMs, readyPodStatus } from "../testing/builders.ts";
import { planRestore, snapshotNameFor } from "./plan.ts";

const awake: EffectiveMode = { mode: "Running", cause: "user" };
const asleep: EffectiveMode = { mode: "Suspended", cause: "user", rung: "Stop" };
const spec = { restoreFrom: { snapshotName: "snap" } };
const from = { name: "snap", uid: "uid-snap" };
const unnamed = aSandbox({ spec });
const named = aSandbox({ spec, status: { restoredFrom: from } });
const failedBefore = aCondition("Ready", "False", { reason: "RestoreFailed", message: "told", observedGeneration: 1 });
const failedOnce = aSandbox({ spec, status: { restoredFrom: from, conditions: [failedBefore] } });
const cold = aSandbox({
  spec,
  metadata: { annotations: { [annotationKeys.coldStart]: "uid-snap" } },
  status: { restoredFrom: from, conditions: [failedBefore] },
});
const replaced = aSnapshot("ready", { metadata: { uid: "uid-other" } });
const deleting = aSnapshot("ready", { metadata: { deletionTimestamp: at(1) } });
const pending = aPod({ status: { phase: "Pending" } });
const restored = (status: "True" | "False", reason: string): Pod => {
  const { conditions = [], ...rest } = readyPodStatus();
  return aPod({
    status: { ...rest, conditions: [...conditions, { type: restoredCondition, status, reason, message: "words" }] },
  });
};
const start = (isCold = false): object => ({ step: "start", stage: { name: "restoring", isCold } });
const failed = (why: string, isTold = true): object => ({
  step: "failed",
  stage: { name: "restore-failed", why: expect.stringContaining(why), isTold },
});
const started = { step: "started", restoredFrom: { ...from, startedAt: at(50) } };

type Row = readonly [string, Sandbox, EffectiveMode, Pod | undefined, SandboxSnapshot | undefined, object];
const rows: readonly Row[] = [
  ["no snapshot in the spec", aSandbox(), awake, undefined, undefined, { step: "none" }],
  [
    "started before, and the snapshot is gone",
    aSandbox({ spec, status: { restoredFrom: { ...from, startedAt: at(1) } } }),
    awake,
    undefined,
    undefined,
    { step: "none" },
  ],
  [
    "its own memory was saved, so it has run",
    aSandbox({
      spec,
      status: { restoredFrom: from, sleep: { id: "1", rung: "Hibernate", savedAt: at(1) } },
    }),
    awake,
    undefined,
    undefined,
    { step: "none" },
  ],
  ["the snapshot is missing", unnamed, awake, undefined, undefined, failed('no SandboxSnapshot "snap"')],
  ["the snapshot is being deleted", unnamed, awake, undefined, deleting, failed('no SandboxSnapshot "snap"')],
  ["the snapshot failed", unnamed, awake, undefined, aSnapshot("failed"), failed("words of failed")],
  [
    "the snapshot is pending",
    unnamed,
    awake,
    undefined,
    aSnapshot("pending"),
    { step: "wait", message: 'Waiting for SandboxSnapshot "snap"' },
  ],
  [
    "the snapshot is being saved",
    unnamed,
    awake,
    undefined,
    aSnapshot("saving"),
    { step: "wait", message: expect.stringContaining("words of saving") },
  ],
  ["the snapshot is ready", unnamed, awake, undefined, aSnapshot("ready"), { step: "name", restoredFrom: from }],
  ["named", named, awake, undefined, aSnapshot("ready"), start()],
  ["named, and gone", named, awake, undefined, undefined, failed("was deleted before")],
  ["named, and another has its name", named, awake, undefined, replaced, failed("was deleted before")],
  ["tried before", failedOnce, awake, undefined, aSnapshot("ready"), failed("told")],
  ["tried before, and put to sleep", failedOnce, asleep, undefined, aSnapshot("ready"), start()],
  ["tried before, its memory given up", cold, awake, undefined, aSnapshot("ready"), start(true)],
  ["the Pod is pending", named, awake, pending, undefined, start()],
  ["the Pod reads pages", named, awake, restored("False", "Restoring"), undefined, start()],
  ["the Pod is restored", named, awake, restored("True", "Restored"), undefined, started],
  ["the Pod runs from files alone", named, awake, aPod(), undefined, started],
  ["the Pod has ended well", named, awake, aPod({ status: { phase: "Succeeded" } }), undefined, started],
  ["the Pod failed before it ran", named, awake, aPod({ status: { phase: "Failed" } }), undefined, start()],
  ["the Pod says why not", named, awake, restored("False", "RestoreFailed"), undefined, failed("words", false)],
  ["the status says why not", failedOnce, awake, restored("False", "RestoreFailed"), undefined, failed("words")],
  [
    "put to sleep before anything ran",
    named,
    asleep,
    pending,
    undefined,
    { step: "start", stage: { name: "unstarted" } },
  ],
  ["put to sleep while pages are read", named, asleep, restored("False", "Restoring"), undefined, start()],
];

describe("planRestore", () => {
  test.each(rows)("planRestore: %s", (_title, sandbox, mode, pod, snapshot, expected) => {
    expect(planRestore({ sandbox, mode, pod, snapshot, nowMs: epochMs + 50_000 })).toEqual(expected);
  });
});

const slept = aCondition("Ready", "False", { reason: "SandboxSuspended", observedGeneration: 1 });
const uid = aSandbox().metadata.uid ?? "";
const point = aSnapshot("ready", { status: { sandboxUID: uid } });
const back = { name: "snap", uid: "uid-snap", generation: 1 };
const asked = {
  podTemplate: { metadata: { annotations: { [podSnapshotAnnotations.name]: "snap" } }, spec: { containers: [] } },
};
const byDefault = { annotations: { [annotationKeys.restartFrom]: "snap" } };
const ran = { podUID: "pod-my-sandbox", conditions: [slept] };
const waker = aSandbox({ spec: asked, status: ran });
const returning = aSandbox({ spec: asked, status: { podUID: "pod-my-sandbox", restart: back } });
const name = (generation: number): object => ({ step: "name", restoredFrom: { ...back, generation } });
const returns: readonly Row[] = [
  ["wakes, and names a snapshot", waker, awake, undefined, point, name(1)],
  ["wakes by default", aSandbox({ metadata: byDefault, status: ran }), awake, undefined, point, name(1)],
  ["still sleeps", waker, asleep, undefined, point, { step: "none" }],
  [
    "has never run",
    aSandbox({ spec: asked, status: { conditions: [slept] } }),
    awake,
    undefined,
    point,
    { step: "none" },
  ],
  ["runs", waker, awake, aPod(), point, { step: "none" }],
  [
    "is made anew without a sleep before",
    aSandbox({
      spec: asked,
      status: { ...ran, conditions: [aCondition("Ready", "False", { reason: "DependenciesNotReady" })] },
    }),
    awake,
    undefined,
    point,
    { step: "none" },
  ],
  [
    "has memory of its own that is younger",
    aSandbox({ spec: asked, status: { ...ran, sleep: { id: "1", rung: "Hibernate", savedAt: at(1) } } }),
    awake,
    undefined,
    point,
    { step: "none" },
  ],
  [
    "for the second time",
    aSandbox({ spec: asked, status: { ...ran, restoredFrom: { ...back, startedAt: at(1) } } }),
    awake,
    undefined,
    point,
    name(2),
  ],
  ["the snapshot is missing", waker, awake, undefined, undefined, failed('no SandboxSnapshot "snap"')],
  [
    "the snapshot is not ready",
    waker,
    awake,
    undefined,
    aSnapshot("saving", { status: { sandboxUID: uid } }),
    failed("not ready"),
  ],
  ["the snapshot is of another Sandbox", waker, awake, undefined, aSnapshot("ready"), failed("of another Sandbox")],
  [
    "the default is missing: its own files",
    aSandbox({ metadata: byDefault, status: ran }),
    awake,
    undefined,
    undefined,
    { step: "none" },
  ],
  [
    "could not: stays so",
    aSandbox({ spec: asked, status: { ...ran, conditions: [failedBefore] } }),
    awake,
    undefined,
    undefined,
    failed('no SandboxSnapshot "snap"'),
  ],
  ["named", returning, awake, undefined, point, start()],
  [
    "named, and the wish is withdrawn",
    aSandbox({ status: { restart: back } }),
    awake,
    undefined,
    point,
    { step: "withdraw" },
  ],
  ["named, withdrawn, and a Pod runs from it", aSandbox({ status: { restart: back } }), awake, pending, point, start()],
  [
    "the Pod runs from it",
    returning,
    awake,
    restored("True", "Restored"),
    undefined,
    { step: "started", restoredFrom: { ...back, startedAt: at(50) } },
  ],
];

describe("planRestore, back to a snapshot", () => {
  test.each(returns)("planRestore: back: %s", (_title, sandbox, mode, pod, snapshot, expected) => {
    expect(planRestore({ sandbox, mode, pod, snapshot, nowMs: epochMs + 50_000 })).toEqual(expected);
  });

  test("snapshotNameFor: the one that was named, else the one that a wish names", () => {
    expect(snapshotNameFor(aSandbox({ status: { restart: { ...back, name: "named" } } }))).toBe("named");
    expect(snapshotNameFor(waker)).toBe("snap");
    expect(snapshotNameFor(unnamed)).toBe("snap");
    expect(snapshotNameFor(aSandbox({ spec: asked }))).toBeUndefined();
  });
});
