import type { Pod, PodCondition, Sandbox, SleepAnswer, SleepWish } from "@agent-sandbox/api";
import { annotationKeys, restoredCondition, sleepAnswer } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aCondition, aPod, aSandbox, at, epochMs, readyPodStatus } from "../testing/builders.ts";
import type { EffectiveMode, Rung } from "./effective-mode.ts";
import { planSleep } from "./plan-sleep.ts";

const now = epochMs + 50_000;
const id = String(epochMs);
const awake: EffectiveMode = { mode: "Running", cause: "user" };
const asleep = (rung: Rung): EffectiveMode => ({ mode: "Suspended", cause: "user", rung });
const freeze: SleepWish = { id, rung: "Freeze" };
const hibernate: SleepWish = { id, rung: "Hibernate" };
const saved: SleepWish = { ...hibernate, savedAt: at(10), savedBytes: 7 };

const wishing = (sleep: SleepWish | undefined, parts: Parameters<typeof aSandbox>[0] = {}): Sandbox =>
  aSandbox({ ...parts, status: { podUID: "pod-my-sandbox", ...parts.status, ...(sleep !== undefined && { sleep }) } });
const withConditions = (conditions: PodCondition[], parts: Partial<Pod["metadata"]> = {}, phase = "Running"): Pod => {
  const { conditions: old = [], ...status } = readyPodStatus();
  return aPod({ metadata: parts, status: { ...status, phase, conditions: [...old, ...conditions] } });
};
const leaving = { deletionTimestamp: at(20) };
const answered = (reason: SleepAnswer["reason"], to = id, parts: Partial<Pod["metadata"]> = {}): Pod =>
  withConditions(
    [sleepAnswer({ id: to, reason, message: "words", ...(reason === "Saved" && { savedBytes: 7 }) })],
    parts,
  );
const restored = (status: "True" | "False", reason: string, phase = "Running"): Pod =>
  withConditions([{ type: restoredCondition, status, reason, message: "words" }], {}, phase);
const pending = aPod({ status: { phase: "Pending" } });
const failedBefore = {
  status: { conditions: [aCondition("Ready", "False", { reason: "RestoreFailed", message: "told" })] },
};
const cold = { metadata: { annotations: { [annotationKeys.coldStart]: id } } };

type Row = readonly [string, Sandbox, EffectiveMode, Pod | undefined, SleepWish | undefined, object];

describe("planSleep, falling asleep", () => {
  const fresh = (rung: "Freeze" | "Hibernate"): SleepWish => ({ id: String(now), rung });
  const rows: readonly Row[] = [
    ["Stop asks nothing of the node", wishing(undefined), asleep("Stop"), aPod(), undefined, { name: "none" }],
    [
      "without a Pod there is nothing to ask",
      wishing(undefined),
      asleep("Freeze"),
      undefined,
      undefined,
      { name: "none" },
    ],
    [
      "a Pod that somebody else deletes is not asked",
      wishing(undefined),
      asleep("Freeze"),
      aPod({ metadata: leaving }),
      undefined,
      { name: "none" },
    ],
    ["freezing is announced", wishing(undefined), asleep("Freeze"), aPod(), fresh("Freeze"), { name: "announce" }],
    [
      "hibernation is announced",
      wishing(undefined),
      asleep("Hibernate"),
      aPod(),
      fresh("Hibernate"),
      { name: "announce" },
    ],
    [
      "a wish that traffic has called off is made anew, where the Sandbox is idle again",
      wishing(freeze, {
        spec: { wakePolicy: "OnTraffic" },
        metadata: { annotations: { [annotationKeys.lastActivityAt]: at(1) } },
      }),
      asleep("Freeze"),
      answered("Awake", ""),
      fresh("Freeze"),
      { name: "announce" },
    ],
    ["the wish keeps its id", wishing(freeze), asleep("Freeze"), aPod(), freeze, { name: "asked" }],
    ["the node is at it", wishing(freeze), asleep("Freeze"), answered("Awake"), freeze, { name: "asked" }],
    [
      "an answer to an earlier wish counts as none",
      wishing(freeze),
      asleep("Freeze"),
      answered("Frozen", "1"),
      freeze,
      { name: "asked" },
    ],
    ["frozen", wishing(freeze), asleep("Freeze"), answered("Frozen"), freeze, { name: "frozen" }],
    ["frozen is not saved", wishing(hibernate), asleep("Hibernate"), answered("Frozen"), hibernate, { name: "asked" }],
    [
      "another rung is another wish",
      wishing(freeze),
      asleep("Hibernate"),
      answered("Frozen"),
      fresh("Hibernate"),
      { name: "announce" },
    ],
    [
      "it failed",
      wishing(hibernate),
      asleep("Hibernate"),
      answered("SleepFailed"),
      hibernate,
      { name: "failed", why: "words" },
    ],
    [
      "an earlier wish failed",
      wishing(hibernate),
      asleep("Hibernate"),
      answered("SleepFailed", "1"),
      hibernate,
      { name: "asked" },
    ],
    [
      "saved, and not said yet",
      wishing(hibernate),
      asleep("Hibernate"),
      answered("Saved"),
      { ...hibernate, savedAt: at(50), savedBytes: 7 },
      { name: "note-saved" },
    ],
    [
      "saved for an earlier wish",
      wishing(hibernate),
      asleep("Hibernate"),
      answered("Saved", "1"),
      hibernate,
      { name: "asked" },
    ],
    [
      "saved and said: the Pod goes",
      wishing(saved),
      asleep("Hibernate"),
      answered("Saved"),
      saved,
      { name: "leaving" },
    ],
    [
      "saved, and Stop is wanted by now: nothing is lost",
      wishing(saved),
      asleep("Stop"),
      answered("Saved"),
      saved,
      { name: "leaving" },
    ],
    [
      "asked, and Stop is wanted by now",
      wishing(freeze),
      asleep("Stop"),
      answered("Frozen"),
      undefined,
      { name: "none" },
    ],
    [
      "a frozen Pod that is gone took its memory with it",
      wishing(freeze),
      asleep("Freeze"),
      undefined,
      undefined,
      { name: "none" },
    ],
    [
      "a Pod that went before it was saved",
      wishing(hibernate),
      asleep("Hibernate"),
      undefined,
      undefined,
      { name: "none" },
    ],
    ["hibernated", wishing(saved), asleep("Hibernate"), undefined, saved, { name: "saved" }],
    ["hibernated, and Stop is wanted by now", wishing(saved), asleep("Stop"), undefined, saved, { name: "saved" }],
  ];
  test.each(rows)("planSleep: falling: %s", (_title, sandbox, mode, pod, wish, stage) => {
    expect(planSleep({ sandbox, mode, pod, nowMs: now })).toEqual({ wish, stage });
  });

  test("planSleep: a Pod that the status does not name yet is named before anything is asked of it", () => {
    const sandbox = wishing(undefined, { status: { podUID: "another" } });
    const plan = planSleep({ sandbox, mode: asleep("Freeze"), pod: aPod(), nowMs: now });
    expect(plan).toEqual({ wish: undefined, stage: { name: "asked" } });
  });

  test("planSleep: an id is later than every id that was used for the Pod, whatever the clock says", () => {
    const pod = answered("Frozen", String(now + 5));
    const { wish } = planSleep({ sandbox: wishing(undefined), mode: asleep("Freeze"), pod, nowMs: now });
    expect(wish?.id).toBe(String(now + 6));
  });
});

describe("planSleep, waking", () => {
  const restoring = { name: "restoring", isCold: false };
  const rows: readonly Row[] = [
    [
      "a wish is withdrawn from a Pod that stays",
      wishing(freeze),
      awake,
      answered("Frozen"),
      undefined,
      { name: "none" },
    ],
    [
      "saved, and the Pod is still there: it runs on",
      wishing(saved),
      awake,
      answered("Saved"),
      undefined,
      { name: "none" },
    ],
    ["saved, and the Pod is going", wishing(saved), awake, answered("Saved", id, leaving), saved, restoring],
    [
      "saved, not said, and somebody deletes the Pod",
      wishing(hibernate),
      awake,
      answered("Saved", id, leaving),
      { ...hibernate, savedAt: at(50), savedBytes: 7 },
      { name: "note-saved" },
    ],
    [
      "not saved, and somebody deletes the Pod",
      wishing(hibernate),
      awake,
      aPod({ metadata: leaving }),
      undefined,
      { name: "none" },
    ],
    ["the Pod is gone", wishing(saved), awake, undefined, saved, restoring],
    ["its successor starts", wishing(saved), awake, pending, saved, restoring],
    ["pages are still read", wishing(saved), awake, restored("False", "Restoring"), saved, restoring],
    ["all is read", wishing(saved), awake, restored("True", "Restored"), undefined, { name: "none" }],
    ["it runs from its files", wishing(saved), awake, aPod(), undefined, { name: "none" }],
    [
      "its successor failed before it ran",
      wishing(saved),
      awake,
      aPod({ status: { phase: "Failed" } }),
      saved,
      restoring,
    ],
    [
      "the restore failed",
      wishing(saved),
      awake,
      restored("False", "RestoreFailed"),
      saved,
      { name: "restore-failed", why: "words", isTold: false },
    ],
    [
      "the restore failed, and the status says so",
      wishing(saved, failedBefore),
      awake,
      restored("False", "RestoreFailed", "Failed"),
      saved,
      { name: "restore-failed", why: "words", isTold: true },
    ],
    [
      "nothing is tried again",
      wishing(saved, failedBefore),
      awake,
      undefined,
      saved,
      { name: "restore-failed", why: "told", isTold: true },
    ],
    [
      "unless the spec was changed",
      wishing(saved, { ...failedBefore, metadata: { generation: 2 } }),
      awake,
      undefined,
      saved,
      restoring,
    ],
    [
      "or the memory given up",
      wishing(saved, { ...failedBefore, ...cold }),
      awake,
      undefined,
      saved,
      { name: "restoring", isCold: true },
    ],
    [
      "memory of another sleep is not given up",
      wishing({ ...saved, id: "9" }, { ...failedBefore, ...cold }),
      awake,
      undefined,
      { ...saved, id: "9" },
      { name: "restore-failed", why: "told", isTold: true },
    ],
  ];
  test.each(rows)("planSleep: waking: %s", (_title, sandbox, mode, pod, wish, stage) => {
    expect(planSleep({ sandbox, mode, pod, nowMs: now })).toEqual({ wish, stage });
  });
});

describe("planSleep, asleep again before it is awake", () => {
  const fresh: SleepWish = { id: String(now), rung: "Hibernate" };
  const mode = asleep("Hibernate");
  const rows: readonly Row[] = [
    [
      "a Pod in which nothing ran goes, and the memory stays",
      wishing(saved),
      mode,
      pending,
      saved,
      { name: "leaving" },
    ],
    ["the same for Stop", wishing(saved), asleep("Stop"), pending, saved, { name: "leaving" }],
    [
      "a Pod that failed goes, and the memory stays",
      wishing(saved),
      asleep("Stop"),
      restored("False", "Restoring", "Failed"),
      saved,
      { name: "leaving" },
    ],
    [
      "a Pod that reads its memory is not disturbed",
      wishing(saved),
      mode,
      restored("False", "Restoring"),
      saved,
      { name: "restoring", isCold: false },
    ],
    [
      "one that has read it is asked again",
      wishing(saved),
      mode,
      restored("True", "Restored"),
      fresh,
      { name: "announce" },
    ],
    ["one that runs without it is asked again", wishing(saved), mode, aPod(), fresh, { name: "announce" }],
    [
      "one that has read it is stopped",
      wishing(saved),
      asleep("Stop"),
      restored("True", "Restored"),
      undefined,
      { name: "none" },
    ],
    [
      "a Pod that could not read it goes",
      wishing(saved),
      mode,
      restored("False", "RestoreFailed"),
      saved,
      { name: "restore-failed", why: "words", isTold: true },
    ],
  ];
  test.each(rows)("planSleep: again: %s", (_title, sandbox, wanted, pod, wish, stage) => {
    expect(planSleep({ sandbox, mode: wanted, pod, nowMs: now })).toEqual({ wish, stage });
  });
});
