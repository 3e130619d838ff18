import { runtimeVersionCondition } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aPod, aSandbox, aSnapshot, at, epochMs, readyPodStatus } from "../testing/builders.ts";
import { planSnapshot, type SnapshotObserved } from "./plan.ts";

const running = aSandbox({ status: { podUID: "pod-my-sandbox" } });
const { conditions = [], ...rest } = readyPodStatus();
const ours = aPod({
  status: { ...rest, conditions: [...conditions, { type: runtimeVersionCondition, status: "True" }] },
});

function observe(parts: Partial<SnapshotObserved> = {}): SnapshotObserved {
  return { snapshot: aSnapshot("pending"), sandbox: running, pod: ours, nowMs: epochMs, ...parts };
}

describe("planSnapshot", () => {
  test.each<[string, Partial<SnapshotObserved>, string, string]>([
    ["no such Sandbox", { sandbox: undefined, pod: undefined }, "SandboxNotFound", 'no Sandbox "my-sandbox"'],
    ["a Sandbox without files", { sandbox: aSandbox(), pod: undefined }, "SandboxNotStarted", "no files to save"],
    ["a node of another kind", { pod: aPod() }, "SnapshotsNotAvailable", 'node "node-1"'],
    ["a node of ours", {}, "NodePending", "waiting for the node"],
    ["a Sandbox that sleeps", { pod: undefined }, "NodePending", "waiting for the node"],
  ])("planSnapshot: %s", (_title, parts, reason, message) => {
    expect(planSnapshot(observe(parts))).toMatchObject({
      kind: "keep",
      status: {
        observedGeneration: 1,
        conditions: [{ type: "Ready", status: "False", reason, message: expect.stringContaining(message) }],
      },
    });
  });
  test.each(["saving", "ready", "failed"] as const)(
    "planSnapshot: the status of one that is %s is the node's",
    (state) => {
      expect(planSnapshot(observe({ snapshot: aSnapshot(state), sandbox: undefined }))).toEqual({ kind: "keep" });
    },
  );
  test("planSnapshot: it is deleted by uid when its time is up, whatever its state, and not before", () => {
    const kept = aSnapshot("ready", { spec: { ttlSecondsAfterCreation: 10 } });
    const early = planSnapshot(observe({ snapshot: kept, nowMs: epochMs + 9_000 }));
    expect(early).toEqual({ kind: "keep", expiresInMs: 1_000 });
    for (const state of ["pending", "saving", "ready", "failed"] as const) {
      const snapshot = aSnapshot(state, { spec: { ttlSecondsAfterCreation: 10 } });
      const plan = planSnapshot(observe({ snapshot, nowMs: epochMs + 10_000 }));
      expect(plan).toEqual({ kind: "delete", uid: "uid-snap" });
    }
  });
  test("planSnapshot: one that is being deleted is left alone", () => {
    const metadata = { deletionTimestamp: at(1) };
    const snapshot = aSnapshot("pending", { metadata, spec: { ttlSecondsAfterCreation: 0 } });
    expect(planSnapshot(observe({ snapshot }))).toEqual({ kind: "idle" });
  });
});
