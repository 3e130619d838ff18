import { expect, test } from "vitest";
import type { SandboxSnapshot } from "./kinds.gen.ts";
import { type SnapshotReason, snapshotState } from "./snapshot-state.ts";

const snapshot = (status: SandboxSnapshot["status"]): SandboxSnapshot => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxSnapshot",
  metadata: { name: "s" },
  spec: { sandboxName: "box" },
  ...(status !== undefined && { status }),
});
const ready = (status: "True" | "False", reason: SnapshotReason) => ({
  conditions: [{ type: "Ready", status, reason, message: "words", lastTransitionTime: "2026-01-01T00:00:00Z" }],
});

test.each<[string, SandboxSnapshot["status"], object]>([
  ["nothing said", undefined, { state: "pending", reason: "", message: "" }],
  ["no node yet", ready("False", "NodePending"), { state: "pending", reason: "NodePending", message: "words" }],
  ["a node has it", { nodeName: "one" }, { state: "saving" }],
  ["a node saves", { nodeName: "one", ...ready("False", "SnapshotSaving") }, { state: "saving" }],
  ["it is there", { nodeName: "one", ...ready("True", "SnapshotReady") }, { state: "ready" }],
  ["it failed", { nodeName: "one", ...ready("False", "SnapshotFailed") }, { state: "failed", message: "words" }],
])("snapshotState: %s", (_name, status, expected) => {
  expect(snapshotState(snapshot(status))).toMatchObject(expected);
});
