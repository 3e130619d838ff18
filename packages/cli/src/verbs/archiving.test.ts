import type { ArchiveReason } from "@agent-sandbox/api/archive-state";
import type { SandboxArchive } from "@agent-sandbox/api/kinds.gen";
import { expect, test } from "vitest";
import { assertLeaves, judgeArchived, judgeRecalled } from "./archiving.ts";

const saying = (reason: ArchiveReason): SandboxArchive => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxArchive",
  metadata: { namespace: "a", name: "box" },
  spec: {},
  status: { conditions: [{ type: "Ready", status: "False", reason, message: "words", lastTransitionTime: "" }] },
});

test.each<[ArchiveReason, "done" | "waiting" | "failed", "done" | "waiting" | "failed"]>([
  ["Archived", "done", "waiting"],
  ["SandboxAwake", "waiting", "waiting"],
  ["NodePending", "waiting", "waiting"],
  ["Storing", "waiting", "waiting"],
  ["StoreFailed", "waiting", "waiting"],
  ["RecallFailed", "waiting", "waiting"],
  ["NoArchive", "failed", "failed"],
  ["SandboxIsControlled", "failed", "waiting"],
  ["ArchiveFailed", "failed", "waiting"],
  ["NameTaken", "failed", "failed"],
])("archiving: %s on the way there is %s, and on the way back %s", (reason, there, back) => {
  expect(judgeArchived(saying(reason)).kind).toBe(there);
  expect(judgeRecalled(saying(reason)).kind).toBe(back);
});

test("archiving: one that freezes and never hibernates is refused before it is put to sleep", () => {
  const metadata = { name: "box" };
  const podTemplate = { spec: { containers: [] } };
  const freezes = { podTemplate, suspensionStrategy: { type: "Freeze" } } as const;
  expect(() => assertLeaves({ metadata, spec: freezes })).toThrow("what is frozen is not archived");
  const autoSuspension = { inactivityTimeoutSeconds: 1, hibernateAfterSeconds: 2 };
  expect(() => assertLeaves({ metadata, spec: { ...freezes, autoSuspension } })).not.toThrow();
  expect(() => assertLeaves({ metadata, spec: { podTemplate } })).not.toThrow();
});
